"""Docker sandboxes for the test of policy against a real shell."""

from sandbox_fixtures import make_spec, open_sandbox, sandbox, sandboxes

__all__ = ["make_spec", "open_sandbox", "sandbox", "sandboxes"]
