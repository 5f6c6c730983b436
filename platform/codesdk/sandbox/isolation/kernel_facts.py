"""Extracts the kernel's part of an attestation from a tool process's /proc. No I/O.

Used for containers and local sandboxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from codesdk.domain.attestation import ExecSeparation
from codesdk.sandbox.isolation.spec import CAPABILITIES

_CAPABILITY_NUMBERS = {"CHOWN": 0, "KILL": 5, "SETGID": 6, "SETUID": 7}
_BOUNDING = sum(1 << _CAPABILITY_NUMBERS[name] for name in CAPABILITIES)
_SECCOMP = {"0": "none", "1": "strict", "2": "filter"}


class KernelFacts(TypedDict):
    """Attestation fields that the kernel reports."""

    network_interfaces: tuple[str, ...]
    tool_uid: int
    uid_map: str
    capabilities: tuple[str, ...]
    no_new_privileges: bool
    seccomp: str
    exec_separation: ExecSeparation


def kernel_facts(observed: Mapping[str, Any]) -> KernelFacts:
    """Extract the facts from the probe's output (`runner/execution/probe.py`)."""
    status = observed["status"]
    return KernelFacts(
        network_interfaces=tuple(observed["interfaces"]),
        tool_uid=int(status["Uid"].split()[1]),
        uid_map=id_map(observed["uid_map"]),
        capabilities=capability_names(int(status["CapEff"], 16)),
        no_new_privileges=status.get("NoNewPrivs") == "1",
        seccomp=_SECCOMP.get(status.get("Seccomp", ""), "unknown"),
        exec_separation=exec_separation(observed),
    )


def exec_separation(observed: Mapping[str, Any]) -> ExecSeparation:
    """Return how far one exec can reach another, from the attempts of the probe."""
    attempts = observed.get("other_exec")  # absent from runners of earlier versions
    if not attempts:
        return ExecSeparation.UNKNOWN
    allowed = {what for what, outcome in attempts.items() if outcome == "ALLOWED"}
    if "memory" in allowed:
        return ExecSeparation.NONE
    return ExecSeparation.MEMORY if allowed else ExecSeparation.FULL


def ungranted_capabilities(status: Mapping[str, str]) -> int:
    """Return the mask of bounding-set capabilities that are never granted; not 0 if the status lacks CapBnd."""
    return int(status.get("CapBnd", "100"), 16) & ~_BOUNDING


def id_map(text: str) -> str:
    """Format a uid or gid map on one line."""
    return ", ".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def is_mapped(id_: int, text: str) -> bool:
    """Return whether the id is mapped in a user namespace's id map."""
    ranges = ([int(word) for word in line.split()] for line in text.splitlines() if line.strip())
    return any(inside <= id_ < inside + count for inside, _, count in ranges)


def capability_names(mask: int) -> tuple[str, ...]:
    """Return the names of the capabilities in a mask; `CAP_<number>` for those never granted."""
    known = {number: name for name, number in _CAPABILITY_NUMBERS.items()}
    return tuple(known.get(bit, f"CAP_{bit}") for bit in range(64) if mask >> bit & 1)
