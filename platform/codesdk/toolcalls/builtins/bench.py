"""What a built-in tool works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from codesdk.domain.calls import CallIdentity
from codesdk.domain.tools import ToolResult
from codesdk.sandbox.port import ExecRequest, ExecResult, FileRefused, OnOutput, Sandbox
from codesdk.sandbox.profile import Profile


@dataclass(frozen=True)
class Bench:
    """One call's place of work."""

    sandbox: Sandbox
    profile: Profile
    identity: CallIdentity
    timeout_s: float
    """Wall time that is left for this call, seconds."""
    on_output: OnOutput
    """Where a command's output goes as it comes."""

    def run(self, argv: tuple[str, ...], on_output: OnOutput | None = None, **more: Any) -> ExecResult:
        """Run a command as this call's one exec."""
        request = ExecRequest(
            call=self.identity.tool_call_id,
            attempt=self.identity.attempt,
            argv=argv,
            timeout_s=min(more.pop("timeout_s", None) or self.timeout_s, self.timeout_s),
            keep_bytes=self.profile.keep_output_bytes,
            egress=self.profile.egress,  # nothing, unless the session's profile names hosts
            **more,
        )
        return self.sandbox.exec(request, on_output or self.on_output)


Builtin = Callable[[dict[str, Any], Bench], ToolResult]


def refused(refusal: FileRefused) -> ToolResult:
    """A file operation's "no" as a tool error that says what to do."""
    return ToolResult(text=refusal.message, is_error=True, code=refusal.error.value)
