"""Finds processes that escaped from their exec's tree where orphans go to PID 1 instead of the subreaper (gVisor).

Each exec gets its own supplementary group. Children inherit it and tools can't drop it, so it identifies the exec of a
process even after a double fork or setsid.
"""

from __future__ import annotations

import os

_KILL = 9
_FIRST_GROUP = 1 << 30
"""First group id used as a mark; above the uids and gids of tools."""
_MAX_STARTS = 1 << 14
_MAX_SCANS = 400
_PAUSE_S = 0.005


def group_of_exec(starts: int) -> int:
    """Return the group of this subreaper's nth exec."""
    return _FIRST_GROUP | os.getpid() % _MAX_STARTS * _MAX_STARTS | starts % _MAX_STARTS


def kill_group(group: int) -> bool:
    """Kill every process in the group. Returns False if some survive for two seconds, as under a fork bomb."""
    import time  # noqa: PLC0415 - only here; elsewhere a subreaper does without

    word = str(group).encode()
    for _ in range(_MAX_SCANS):
        found = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if _is_in_group(pid, word)]
        if not found:
            return True
        for pid in found:
            try:
                os.kill(int(pid), _KILL)
            except ProcessLookupError:
                pass  # it ended meanwhile
        time.sleep(_PAUSE_S)
    return False


def _is_in_group(pid: str, word: bytes) -> bool:
    state, groups = b"", b""
    try:
        with open("/proc/" + pid + "/status", "rb") as status:
            for line in status:
                if line.startswith(b"State:"):
                    state = line.split()[1]
                elif line.startswith(b"Groups:"):
                    groups = line
    except OSError:
        return False  # it ended while we looked
    return state not in (b"Z", b"X") and word in groups.split()
