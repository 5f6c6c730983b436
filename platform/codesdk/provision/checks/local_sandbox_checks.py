"""Checks of local sandboxes on this machine. Pure functions of what was detected and configured."""

from __future__ import annotations

from codesdk.provision.checks.check import Check, Status
from codesdk.sandbox.local.cgroups import Controller
from codesdk.sandbox.local.confinement import Confinement, Isolation

NAME = "local sandboxes"
INSTALL = "apt-get install bubblewrap (`--sandbox local` does it if it can)"


def check_local_sandboxes(found: Confinement, setting: str) -> tuple[Check, ...]:
    """`setting`: the value of CODESDK_LOCAL_SANDBOX."""
    if setting == "off":
        return (Check(NAME, Status.INFO, "forbidden (CODESDK_LOCAL_SANDBOX=off)"),)
    in_use = setting in ("on", "plain")
    return (
        _confinement_check(found, setting, in_use=in_use),
        _user(found, in_use=in_use),
        _limits_check(found, in_use=in_use),
    )


def _confinement_check(found: Confinement, setting: str, *, in_use: bool) -> Check:
    use = {"on": "in use", "plain": "in use, PLAIN as configured"}.get(setting, "possible, not in use")
    if found.isolation is Isolation.BUBBLEWRAP and setting != "plain":
        detail = f"{use}: bubblewrap separates network, files and processes; the kernel is this machine's"
        return Check(NAME, Status.OK if in_use else Status.INFO, detail)
    if setting == "plain":
        return Check(
            NAME, Status.WARN, f"{use}: NOTHING separates network, files or processes", "CODESDK_LOCAL_SANDBOX=on"
        )
    detail = f"cannot be separated: {found.why_not}"
    return Check(NAME, Status.FAIL if in_use else Status.INFO, detail, INSTALL)


def _user(found: Confinement, *, in_use: bool) -> Check:
    if found.apart:
        return Check("local user", _severity(in_use), "tools run as a separate uid, not the runner's")
    detail = "tools run as THIS user, and can take over the runner of their sandbox"
    return Check("local user", Status.WARN if in_use else Status.INFO, detail, "Run CodeSDK as root, or in containers")


def _limits_check(found: Confinement, *, in_use: bool) -> Check:
    words = {
        Controller.MEMORY: "memory",
        Controller.CPU: "CPU",
        Controller.PIDS: "processes",
        Controller.FREEZER: "pausing",
    }
    held = [word for control, word in words.items() if control in found.groups.parents]
    lacking = [word for control, word in words.items() if control not in found.groups.parents]
    kind = "v2" if found.groups.unified else "v1"
    detail = f"cgroups ({kind}) for {', '.join(held)}" if held else "no cgroup can be created"
    if not lacking:
        return Check("local limits", _severity(in_use), f"{detail} of a sandbox as a whole")
    detail = f"{detail}; NOT of a sandbox as a whole: {', '.join(lacking)} ({found.groups.why_not}); each process has rlimits"
    fix = "Run as root with the cgroup file system writable, or under systemd with Delegate=yes"
    return Check("local limits", Status.WARN if in_use else Status.INFO, detail, fix)


def _severity(in_use: bool) -> Status:
    return Status.OK if in_use else Status.INFO
