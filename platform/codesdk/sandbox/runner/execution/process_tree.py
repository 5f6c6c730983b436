"""Signals a process tree: stops all processes of the tool's uid, signals the tree, resumes the others.

Scanning and killing one by one loses the race against a fork bomb. `kill(-1, SIGSTOP)` walks the process list under the
kernel's lock, so no process of the uid escapes it. A fork that is in progress still ends, with a stopped child: the scan is
repeated until all are stopped and no new one appears.
"""

from __future__ import annotations

import os
import time

from codesdk.sandbox.runner import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Callable, Optional

    Process = tuple[int, int]
    """The parent's pid, and DEAD, STOPPED, BLOCKED or RUNNING."""
    Table = dict[int, Process]
    ReadProcess = Callable[[int], Optional[Process]]

_STOP, _CONTINUE = 19, 18
KILLER_UID = 65534
"""The killer's real uid while it signals. With root's, root's processes would be hit; with the tool's, a tool could
signal the killer. No process of a sandbox has it; `main` sets another one where there is no PID namespace."""
MAX_SCANS = 200
_SCAN_PAUSE_S = 0.001
STOP_S = 2.0
"""How long to wait until every process that was sent SIGSTOP has stopped."""
DEAD, STOPPED, BLOCKED, RUNNING = 0, 1, 2, 3
"""BLOCKED: in a system call that no signal interrupts. It may still change a file, except the caller of a vfork, which
remains in it until its child goes on."""
_VFORKS = {"x86_64": ("58", "56"), "aarch64": ("", "220")}
"""Numbers of `vfork` and `clone`."""
_CLONE_VFORK = 0x4000
_STATES = {b"Z": DEAD, b"X": DEAD, b"T": STOPPED, b"t": STOPPED, b"D": BLOCKED}
"""By the kernel's letter; any other is RUNNING."""
_STATE, _PARENT, _THREADS = 0, 1, 17
"""Fields of /proc/PID/stat after the command's closing bracket."""
_MISSING = (0, DEAD)


def read_stat(folder: str) -> list[bytes] | None:
    """Return the fields of a process's or thread's `stat` after its command; None if it has ended."""
    try:
        with open(folder + "/stat", "rb") as stat:
            # The command name may contain brackets and newlines; the last bracket ends it.
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None  # it has ended
    return fields if len(fields) > _THREADS else None


def read_process(pid: int) -> Process | None:
    """Return the parent of a process and its state, which is that of its most active thread; None if there is none.

    The first thread alone does not tell: it may have ended, a zombie to the kernel, while others run on.
    """
    folder = f"/proc/{pid}"
    fields = read_stat(folder)
    if fields is None:
        return None
    parent, state = int(fields[_PARENT]), _STATES.get(fields[_STATE], RUNNING)
    if state != RUNNING and int(fields[_THREADS]) > 1:
        try:
            threads = [read_stat(folder + "/task/" + name) for name in os.listdir(folder + "/task")]
        except OSError:
            return None
        state = max([state] + [_STATES.get(thread[_STATE], RUNNING) for thread in threads if thread])
    return parent, state


def all_pids() -> list[int]:
    """Return the pid of every process."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parents(read: ReadProcess = read_process, pids: Iterable[int] | None = None) -> Table:
    """Return the parent and the state of every process.

    A process that dies during the scan passes its children to another parent. One that was read before that would belong
    to no tree, so the scan reads again whatever has no living parent, until nothing changes.
    """
    table: Table = {}
    unread = list(all_pids() if pids is None else pids)
    for _ in range(MAX_SCANS):
        changed = False
        for pid in unread:
            process = read(pid)
            changed = changed or process != table.get(pid)
            if process is not None:
                table[pid] = process
            else:
                table.pop(pid, None)
        unread = [pid for pid, (parent, _) in table.items() if parent and table.get(parent, _MISSING)[1] == DEAD]
        if not unread or not changed:
            break
    return table


def descendants(root: int, table: Table, excluding: int = 0) -> list[int]:
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
                if table[pid][1] != DEAD:
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


def freeze(
    uid: int, fork_server: int, stop: bool, killer_uid: int, subreapers: Callable[[], Iterable[int | None]]
) -> bool:
    """Stop or resume every tool process. Returns whether all have stopped.

    `subreapers`: pids of those that run an exec, None for one that is not known yet. Each is waited for until it has
    started its exec's first process, which otherwise would begin while all others are stopped.
    """

    def tools() -> dict[int, int]:
        table = parents()
        return _states_below((pid for pid, (parent, _) in table.items() if parent == fork_server), table)

    def send(number: int) -> None:
        if uid == os.getuid():
            _signal_until_quiet(tools, number)
        else:
            signal_all(uid, killer_uid, number)

    def stopped() -> dict[int, int]:
        send(_STOP)  # each time: an exec's first process may have begun since
        found = tools() if uid == os.getuid() else states_of_user(uid)
        return {**found, **dict.fromkeys(_resume_starting(subreapers(), found), RUNNING)}

    if stop:
        return _wait_until_stopped(stopped, lambda pid: _waits_for_vfork(pid, uid))[1]
    send(_CONTINUE)
    return True


def _resume_starting(subreapers: Iterable[int | None], tools: dict[int, int]) -> list[int]:
    """Return the subreapers that have not started their exec's first process yet, 0 for one that is not known.

    Resumes them and what they start: while it starts its exec, a subreaper has the tools' uid and is stopped with them.
    It would start it later, and hold up the starts behind it.
    """
    pids = list(subreapers)
    table = parents() if pids else {}
    children: dict[int, list[int]] = {}
    for child, (parent, _) in table.items():
        children.setdefault(parent, []).append(child)
    starting = []
    for pid in pids:
        if pid is None:
            starting.append(0)
        elif pid in table and (pid in tools or pid not in children or table[pid][1] == BLOCKED):
            starting.append(pid)
            for one in (pid, *children.get(pid, ())):
                if table[one][1] == STOPPED:
                    _send(one, _CONTINUE)
    return starting


def _waits_for_vfork(pid: int, uid: int) -> bool:
    """Return whether each blocked thread of a tool's process waits for a child of its vfork.

    False if the kernel doesn't tell, as of a process that hides its memory.
    """
    vfork, clone = _VFORKS.get(os.uname().machine, ("", ""))
    own_ids = uid == os.getuid()
    if not own_ids:  # only who could trace it may see its system call
        kernel.set_thread_gids(-1, uid, -1)
        kernel.set_thread_uids(-1, uid, -1)
    try:
        folder = f"/proc/{pid}/task/"
        for thread in os.listdir(folder):
            fields = read_stat(folder + thread)
            if fields is None or _STATES.get(fields[_STATE], RUNNING) != BLOCKED:
                continue
            with open(folder + thread + "/syscall", encoding="ascii") as file:
                number, *arguments = file.read().split()
            is_vfork = number == vfork or (number == clone and int(arguments[0], 16) & _CLONE_VFORK)
            if not is_vfork:
                return False
    except (OSError, ValueError, LookupError):
        return False
    finally:
        if not own_ids:
            kernel.set_thread_uids(-1, 0, -1)
            kernel.set_thread_gids(-1, 0, -1)
    return True


def _signal_until_quiet(find: Callable[[], Iterable[int]], number: int) -> list[int]:
    """Signal processes one by one until a scan finds no new one; returns them.

    A fork bomb can outrun it for a while; the caller repeats until nothing is left.
    """
    signalled: list[int] = []
    for _ in range(MAX_SCANS):
        fresh = [pid for pid in find() if pid not in signalled]
        if not fresh:
            break
        for pid in fresh:
            _send(pid, number)
        signalled += fresh
    return signalled


def _wait_until_stopped(
    states: Callable[[], dict[int, int]], counts_as_stopped: Callable[[int], bool]
) -> tuple[dict[int, int], bool]:
    """Wait until all these processes are stopped and no new one appears.

    Returns the processes, and False if that did not happen within STOP_S. `counts_as_stopped`: whether a blocked process
    does.
    """
    known: set[int] = set()
    deadline = time.monotonic() + STOP_S
    while True:
        found = states()
        if known.issuperset(found) and all(
            state <= STOPPED or (state == BLOCKED and counts_as_stopped(pid)) for pid, state in found.items()
        ):
            return found, True
        if time.monotonic() > deadline:
            return found, False
        known = set(found)
        time.sleep(_SCAN_PAUSE_S)


def states_of_user(uid: int) -> dict[int, int]:
    """Return the state of every live process with this uid."""
    return _states_by_id(b"Uid:", uid)


def states_of_group(group: int) -> dict[int, int]:
    """Return the state of every live process with this supplementary group."""
    return _states_by_id(b"Groups:", group)


def _states_by_id(field: bytes, wanted: int) -> dict[int, int]:
    word, found = str(wanted).encode(), {}
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/status", "rb") as status:
                line = next((line for line in status if line.startswith(field)), b"")
        except OSError:
            continue  # it has ended
        process = read_process(pid) if word in line.split() else None
        if process is not None and process[1] != DEAD:
            found[pid] = process[1]
    return found


def signal_tree(
    root: int, uid: int, number: int, excluding: int = 0, killer_uid: int = KILLER_UID, keep_stopped: bool = False
) -> int:
    """Signal every process below `root`, but not `root` itself; returns how many."""
    if uid == os.getuid():
        return _signal_own(root, number, excluding)
    with FrozenProcesses(uid, killer_uid, keep_stopped):
        pids, _ = _wait_until_stopped(lambda: _states_below((root,), parents(), excluding), lambda _: True)
        for pid in pids:
            _send(pid, number)
    return len(pids)


def _states_below(roots: Iterable[int], table: Table, excluding: int = 0) -> dict[int, int]:
    return {pid: table[pid][1] for root in roots for pid in descendants(root, table, excluding)}


def _signal_own(root: int, number: int, excluding: int) -> int:
    """Signal the tree where tools share the runner's uid: no signal to all of them would leave the runner out."""
    stopped = _signal_until_quiet(lambda: descendants(root, parents(), excluding), _STOP)
    for pid in stopped:
        _send(pid, number)
        _send(pid, _CONTINUE)
    return len(stopped)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # already killed and reaped
