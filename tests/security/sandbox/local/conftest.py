"""Local sandboxes for the security tests, with bubblewrap and without isolation."""

from local_sandboxes import make_spec, opened, sandboxes

__all__ = ["make_spec", "opened", "sandboxes"]
