"""Which worker serves a host: registration, heartbeat, and takeover from a worker that hangs."""
