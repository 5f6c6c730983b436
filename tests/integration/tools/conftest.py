"""Docker sandboxes, and what the tools' tests share."""

from __future__ import annotations

from sandbox_fixtures import make_spec, open_sandbox, sandbox, sandboxes

__all__ = ["make_spec", "open_sandbox", "sandbox", "sandboxes"]
