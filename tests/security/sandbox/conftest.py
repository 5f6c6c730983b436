"""Docker sandboxes for the security tests."""

from sandbox_fixtures import make_spec, open_sandbox, sandbox, sandboxes

__all__ = ["make_spec", "open_sandbox", "sandbox", "sandboxes"]
