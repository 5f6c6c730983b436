"""The egress listener inside the sandbox, and the check of who connects to it."""
