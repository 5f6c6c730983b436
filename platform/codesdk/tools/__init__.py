"""The built-in tools: each takes checked input and a sandbox, and gives a result. Failures inside are results."""

from codesdk.tools.catalog import BUILTINS, acts_only_in_last_request, run_tool, runs_one_exec
from codesdk.tools.context import (
    DEFAULT_PROCESS_LIFETIME_S,
    NO_TRANSFERS,
    Attachment,
    Builtin,
    StoredOutput,
    ToolContext,
    Transfers,
    files_changed_result,
    process_limits,
)

__all__ = [
    "BUILTINS",
    "DEFAULT_PROCESS_LIFETIME_S",
    "NO_TRANSFERS",
    "Attachment",
    "Builtin",
    "StoredOutput",
    "ToolContext",
    "Transfers",
    "acts_only_in_last_request",
    "files_changed_result",
    "process_limits",
    "run_tool",
    "runs_one_exec",
]
