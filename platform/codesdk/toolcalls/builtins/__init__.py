"""The built-in tools: each takes checked input and a sandbox, and gives a result. Failures inside are results."""

from codesdk.toolcalls.builtins.bench import DAY_S, Attachment, Bench, Builtin, files_changed, process_limits
from codesdk.toolcalls.builtins.catalog import BUILTINS, acts_last, run_tool, runs_one_exec

__all__ = [
    "BUILTINS",
    "DAY_S",
    "Attachment",
    "Bench",
    "Builtin",
    "acts_last",
    "files_changed",
    "process_limits",
    "run_tool",
    "runs_one_exec",
]
