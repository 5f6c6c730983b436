"""Records marks along a governed call in the processes of a bench: on their PYTHONPATH, never a part of the product.

With CODESDK_BENCH_MARKS=<file>, the modules named below are wrapped when they are imported. Each mark is written to the
file as `<nanoseconds of the wall clock> <mark>`, in one write, so that several processes may share it.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import sys
import time
from typing import Any

MARKS = {
    "codesdk.sessions.authentication": [("SessionAuthenticator.subject", "token", "admitted")],
    "codesdk.mcphost.tool_calls.handler": [("CallHandler._submit", "submit", "")],
    "codesdk.toolcalls.pipeline": [("Pipeline._submit", "record", ""), ("Pipeline.submit", "", "submitted")],
    "codesdk.worker.calls.dispatcher": [("Dispatcher.wake", "woken", "")],
    "codesdk.toolcalls.claim": [("CallClaimer.take", "claim", "claimed")],
    "codesdk.sandbox.channel.sandbox": [("RunnerSandbox.exec", "exec", "executed")],
    "codesdk.toolcalls.execution": [("Execution._end", "end", "ended")],
    "codesdk.toolcalls.results": [("CompletionNotifier._on_end", "notified", "")],
}
"""Module -> wrapped functions, each with the marks of its beginning and its end."""


def mark(out: int, name: str) -> None:
    if name:
        os.write(out, f"{time.time_ns()} {name}\n".encode())


def wrap(module: Any, path: str, before: str, after: str, out: int) -> None:
    owner, name = path.split(".")
    held = getattr(module, owner)
    inner = getattr(held, name)

    @functools.wraps(inner)
    def marked(*args: Any, **kwargs: Any) -> Any:
        mark(out, before)
        try:
            return inner(*args, **kwargs)
        finally:
            mark(out, after)

    setattr(held, name, marked)


class Finder(importlib.abc.MetaPathFinder):
    """Finds modules as usual, and wraps them after they have run."""

    def __init__(self, out: int) -> None:
        self.out = out

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """As the import system asks."""
        if name not in MARKS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                for called, before, after in MARKS[name]:
                    wrap(module, called, before, after, self.out)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if marks := os.environ.get("CODESDK_BENCH_MARKS"):
    sys.meta_path.insert(0, Finder(os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)))
