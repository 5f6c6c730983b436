"""Signals a process tree: stops all processes of the tool's uid, signals the tree, resumes the others.

Scanning and killing one by one loses the race against a fork bomb. `kill(-1, SIGSTOP)` walks the process list under the
kernel's lock, so no process of the uid escapes it, and the scan that follows sees a frozen process table.
"""

from __future__ import annotations

import os

from codesdk.sandbox.runner import kernel

_STOP, _CONTINUE = 19, 18
KILLER_UID = 65534
"""The killer's real uid while it signals. With root's, root's processes would be hit; with the tool's, a tool could
signal the killer. No process of a sandbox has it; `main` sets another one where there is no PID namespace."""
MAX_SCANS = 200


def parents() -> dict[int, tuple[int, str]]:
    """Return the parent and state letter of every process, by pid."""
    found: dict[int, tuple[int, str]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/" + name + "/stat", "rb") as stat:
                # The command name may contain brackets and newlines; the last bracket ends it.
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it ended while we looked
        if len(fields) > 1:
            found[int(name)] = (int(fields[1]), fields[0].decode("ascii", "replace"))
    return found


def descendants(root: int, table: dict[int, tuple[int, str]], excluding: int = 0) -> list[int]:
    """Return the live processes below `root`, without zombies and without the subtree of `excluding`."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    seen: set[int] = {root, excluding}
    stack = [root]
    while stack:
        for pid in children.get(stack.pop(), ()):
            if pid not in seen:
                seen.add(pid)
                stack.append(pid)
                if table[pid][1] not in "ZX":
                    found.append(pid)
    return found


class FrozenProcesses:
    """Context manager that freezes every process of the tool's uid."""

    def __init__(self, uid: int, killer_uid: int, keep_stopped: bool = False) -> None:
        """`keep_stopped`: leave the processes stopped on exit, for another holder of the freeze."""
        self._uid = uid
        self._killer_uid = killer_uid
        self._keep_stopped = keep_stopped

    def __enter__(self) -> None:
        signal_all(self._uid, self._killer_uid, _STOP)

    def __exit__(self, *_: object) -> None:
        if not self._keep_stopped:
            signal_all(self._uid, self._killer_uid, _CONTINUE)


def signal_all(uid: int, killer_uid: int, number: int) -> None:
    """Signal every process of the tool's uid."""
    kernel.set_thread_uids(killer_uid, uid, 0)
    try:
        # kill(-1) with the wrong uid would stop the runner's own helpers, so check that the call took effect.
        if os.getresuid() != (killer_uid, uid, 0):
            raise RuntimeError("the killer has not become the tool's uid")
        os.kill(-1, number)
    except ProcessLookupError:
        pass  # the tool's uid has no process
    finally:
        kernel.set_thread_uids(0, 0, 0)


def freeze(uid: int, fork_server: int, stop: bool, killer_uid: int = KILLER_UID) -> None:
    """Stop or resume every tool process."""
    if uid != os.getuid():
        signal_all(uid, killer_uid, _STOP if stop else _CONTINUE)
        return
    stopped: set[int] = set()
    for _ in range(MAX_SCANS):
        table = parents()
        subreapers = [pid for pid, (parent, _) in table.items() if parent == fork_server]
        tools = {pid for subreaper in subreapers for pid in descendants(subreaper, table)}
        fresh = tools - stopped
        if not fresh:
            return
        for pid in fresh:
            _send(pid, _STOP if stop else _CONTINUE)
        stopped |= fresh


def signal_tree(
    root: int, uid: int, number: int, excluding: int = 0, killer_uid: int = KILLER_UID, keep_stopped: bool = False
) -> int:
    """Signal every process below `root`, but not `root` itself; returns how many."""
    if uid == os.getuid():
        return _signal_own(root, number, excluding)
    with FrozenProcesses(uid, killer_uid, keep_stopped):
        pids = descendants(root, parents(), excluding)
        for pid in pids:
            _send(pid, number)
    return len(pids)


def _signal_own(root: int, number: int, excluding: int) -> int:
    """Signal the tree where tools share the runner's uid: stop processes one by one until a scan finds no new one.

    A fork bomb can outrun it for a while; the caller repeats until nothing is left.
    """
    stopped: list[int] = []
    for _ in range(MAX_SCANS):
        fresh = [pid for pid in descendants(root, parents(), excluding) if pid not in stopped]
        if not fresh:
            break
        for pid in fresh:
            _send(pid, _STOP)
        stopped += fresh
    for pid in stopped:
        _send(pid, number)
        _send(pid, _CONTINUE)
    return len(stopped)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # already killed and reaped
