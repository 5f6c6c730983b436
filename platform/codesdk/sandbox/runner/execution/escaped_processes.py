"""Finding what left its exec's tree, where orphans go to process 1 and not to the subreaper (gVisor).

Each exec there carries a supplementary group of its own. Children inherit it, and a tool has no right to drop it, so
whatever a process does (double fork, setsid), its group says which exec it belongs to.
"""

from __future__ import annotations

import os

_KILL = 9
_FIRST_GROUP = 1 << 30
"""Groups from here on are marks: above the uids and gids of tools."""
_MAX_STARTS = 1 << 14
_MAX_SCANS = 400
_PAUSE_S = 0.005


def group_of_exec(starts: int) -> int:
    """A group for this subreaper's exec of that number."""
    return _FIRST_GROUP | os.getpid() % _MAX_STARTS * _MAX_STARTS | starts % _MAX_STARTS


def kill_group(group: int) -> bool:
    """Kill every process of that group; False where some live on after two seconds, as under a fork bomb."""
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
