"""Finds processes that escaped from their exec's tree where orphans go to PID 1 instead of the subreaper (gVisor).

Each exec gets its own supplementary group. Children inherit it and tools can't drop it, so it identifies the exec of a
process even after a double fork or setsid.
"""

from __future__ import annotations

import os

from codesdk.sandbox.runner.execution import process_tree

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

    for _ in range(_MAX_SCANS):
        found = process_tree.states_of_group(group)
        if not found:
            return True
        for pid in found:
            try:
                os.kill(pid, _KILL)
            except ProcessLookupError:
                pass  # it ended meanwhile
        time.sleep(_PAUSE_S)
    return False
