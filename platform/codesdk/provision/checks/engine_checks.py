"""Checks of an engine's `/info` document. Pure functions."""

from __future__ import annotations

import re
from typing import Any

from codesdk.provision.checks.check import Check, Status

RUNC_FIXED = {(1, 2): 8, (1, 3): 3}
"""First release per branch without CVE-2025-31133, -52565 and -52881 (container escapes by mount races, 11/2025);
1.4.0 and later never had them."""
RUNC_CLEAN = (1, 4)
LIMITS = {"MemoryLimit": "memory", "SwapLimit": "swap", "PidsLimit": "pids", "CpuCfsQuota": "cpu"}


def check_engine(info: dict[str, Any]) -> tuple[Check, ...]:
    """All checks that the document answers."""
    return (_runtime(info), _cgroups(info), _seccomp(info), _gvisor(info))


def _runtime(info: dict[str, Any]) -> Check:
    version = str((info.get("RuncCommit") or {}).get("ID", ""))
    numbers = re.search(r"(\d+)\.(\d+)\.(\d+)", version)
    if numbers is None:
        return Check("runc", Status.WARN, "the engine does not report its runc version", "See: runc --version")
    major, minor, patch = (int(number) for number in numbers.groups())
    fixed = RUNC_FIXED.get((major, minor))
    if (major, minor) >= RUNC_CLEAN or (fixed is not None and patch >= fixed):
        return Check("runc", Status.OK, version)
    return Check(
        "runc",
        Status.WARN,
        f"{version} is older than 1.2.8, 1.3.3 and 1.4.0, which close the container escapes CVE-2025-31133, -52565 and"
        " -52881 (a distribution may have closed them in its own package)",
        "Upgrade it (Debian: apt-get install --only-upgrade runc, and read its changelog), or use gVisor",
    )


def _cgroups(info: dict[str, Any]) -> Check:
    version, driver = info.get("CgroupVersion", "?"), info.get("CgroupDriver", "?")
    missing = [name for key, name in LIMITS.items() if not info.get(key)]
    detail = f"v{version} ({driver})"
    if not missing:
        return Check("cgroups", Status.OK, detail)
    hard = set(missing) - {"swap"}
    fix = "Boot the kernel with cgroup_enable=memory swapaccount=1, or delegate the controllers to a rootless engine"
    return Check("cgroups", Status.FAIL if hard else Status.WARN, f"{detail}; no limit of: {', '.join(missing)}", fix)


def _seccomp(info: dict[str, Any]) -> Check:
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    if any("name=seccomp" in option and "profile=unconfined" not in option for option in options):
        return Check("seccomp", Status.OK, "the engine filters system calls")
    return Check(
        "seccomp", Status.FAIL, "the engine does not filter system calls", "Use a kernel and an engine with seccomp"
    )


def _gvisor(info: dict[str, Any]) -> Check:
    if "runsc" in (info.get("Runtimes") or {}):
        return Check("gvisor", Status.OK, "runsc is registered")
    return Check(
        "gvisor",
        Status.WARN,
        "runsc is not registered; sandboxes share the host's kernel",
        "Install runsc and register it in /etc/docker/daemon.json for profiles that ask for it",
    )
