"""Probes that a runtime can't run, with reasons. All other probes must pass."""

from __future__ import annotations

_OWN_KERNEL = "gVisor's own kernel answers system calls, inside the sandbox; the engine's filter is not applied"
_OWN_PROC = "gVisor's /proc does not show it"
_WHOLE = (
    "memory and processes are those of gVisor's own process: where they run out, the whole sandbox ends, and says so"
)

EXEMPT: dict[str, dict[str, str]] = {
    "runsc": {
        "end-memory": _WHOLE,
        "hostile-memory-children": _WHOLE,
        "hostile-memory-mapped": _WHOLE,
        "hostile-pipes": _WHOLE,
        "hostile-fork-bomb": _WHOLE,
        "hostile-shell-fork-bomb": _WHOLE,
        "hostile-inodes": "gVisor's tmpfs counts bytes and not files; the sandbox's memory bounds them",
        "hostile-oom-score": "a score may be set and is not obeyed: for memory the sandbox ends as a whole",
        "escape-denied-keys": _OWN_KERNEL,
        "escape-denied-programs-in-kernel": _OWN_KERNEL,
        "escape-denied-other-processes": _OWN_KERNEL,
        "escape-denied-namespaces": _OWN_KERNEL,
        "escape-denied-io-uring": _OWN_KERNEL,
        "escape-denied-file-handles": _OWN_KERNEL,
        "escape-denied-memory-placement": _OWN_KERNEL,
        "escape-denied-aio": _OWN_KERNEL,
        "escape-namespaces": "gVisor has namespaces of its own; those of the host are out of reach of any call",
        "escape-socket-families": _OWN_KERNEL,
        "escape-personality": _OWN_KERNEL,
        "escape-32-bit-entry": _OWN_KERNEL,
        "escape-filter": _OWN_PROC,
        "escape-no-new-privileges": _OWN_PROC,
        "escape-limits": "gVisor shows no cgroup inside; the engine's word stands for the limits",
        "escape-read-only": "gVisor's /proc is its own and no mount of the engine's; that it cannot be written is tried",
        "escape-dev": "/dev/fuse and /dev/net are gVisor's own and lead to nothing of the host's",
        "escape-ipc": "gVisor has no /proc/sysvipc",
        "escape-runner-seen": "gVisor shows environment and memory map of every process to all; nothing secret is in ours",
    }
}


def exemption(runtime: str, probe: str) -> str:
    """Return why the probe isn't run on this runtime; empty if it is."""
    return EXEMPT.get(runtime, {}).get(probe, "")
