"""Docker sandboxes and shared fixtures of the tools' tests."""

from __future__ import annotations

from sandbox_fixtures import make_spec, open_sandbox, sandbox, sandboxes

__all__ = ["make_spec", "open_sandbox", "sandbox", "sandboxes"]
