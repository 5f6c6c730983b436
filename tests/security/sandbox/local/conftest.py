"""Local sandboxes for the security tests, behind bubblewrap and without a wall."""

from local_sandboxes import make_spec, opened, sandboxes

__all__ = ["make_spec", "opened", "sandboxes"]
