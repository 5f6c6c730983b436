"""The host's sandboxes: created, reattached, stopped, reaped when idle, kept warm in a pool."""
