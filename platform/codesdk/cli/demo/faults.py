"""The demo's fault."""

from __future__ import annotations

from codesdk.errors import ExitCode, Fault


class DemoFailed(Fault):
    """A step did not end as expected, or the record does not match."""

    code = "DEMO_FAILED"
    exit_code = ExitCode.FAILED
