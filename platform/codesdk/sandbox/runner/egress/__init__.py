"""The egress listener inside the sandbox, and who connects to it."""
