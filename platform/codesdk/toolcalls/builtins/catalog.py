"""Which built-in stands behind which manifest."""

from __future__ import annotations

from codesdk.toolcalls.builtins.bench import Builtin
from codesdk.toolcalls.builtins.command import command_argv, execute
from codesdk.toolcalls.builtins.files import list_directory, read, write
from codesdk.toolcalls.builtins.patch import apply
from codesdk.toolcalls.builtins.search import search

__all__ = ["BUILTINS", "command_argv"]

BUILTINS: dict[str, Builtin] = {
    "workspace.read": read,
    "workspace.write": write,
    "workspace.list": list_directory,
    "workspace.search": search,
    "workspace.exec": execute,
    "patch.apply": apply,
}
