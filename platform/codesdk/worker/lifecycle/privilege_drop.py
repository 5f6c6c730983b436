"""`codesdk-as-worker COMMAND…`: drops root in the worker's container, then runs the command.

The container starts as root for two things that are known only at run time: the group that owns the engine's socket, and
the device nodes of the host's loop devices. After that the process has neither root nor a capability and can't regain
them (no-new-privileges).
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from pathlib import Path

from codesdk.settings import Settings

USER = "codesdk"
"""User in the image."""
DEVICES = Path("/dev")
LOOP_DEVICES = 1024
"""Loop devices that the worker may use. The kernel assigns the lowest free number."""
_LOOP, _MISC, _CONTROL = 7, 10, 237
"""linux/major.h, linux/miscdevice.h"""


def main() -> None:
    """Drop privileges and exec the command. Without root, only exec it."""
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: codesdk-as-worker COMMAND...")
    if os.geteuid() == 0:
        user = pwd.getpwnam(USER)
        drop_privileges(user.pw_uid, user.pw_gid, engine_groups(Settings().docker_host))
    try:
        os.execvp(command[0], command)  # noqa: S606 (the command is the container's own)
    except OSError as error:
        sys.exit(f"error: {command[0]}: {error.strerror}")


def drop_privileges(uid: int, gid: int, groups: list[int]) -> None:
    """Create the loop device nodes, then switch to the user."""
    os.setgid(gid)
    make_loop_devices(DEVICES)
    os.setgroups(groups)
    os.setuid(uid)


def engine_groups(docker_host: str) -> list[int]:
    """The group that owns the engine's socket. Empty if `docker_host` is no local socket."""
    socket = Path(docker_host.removeprefix("unix://"))
    if not docker_host.startswith("unix://") or not socket.exists():
        return []
    return [socket.stat().st_gid]


def make_loop_devices(devices: Path) -> None:
    """Create nodes for this process's group. The container's device rules decide whether they may be opened."""
    before = os.umask(0)
    try:
        _make_node(devices / "loop-control", stat.S_IFCHR, os.makedev(_MISC, _CONTROL))
        for number in range(LOOP_DEVICES):
            _make_node(devices / f"loop{number}", stat.S_IFBLK, os.makedev(_LOOP, number))
    finally:
        os.umask(before)


def _make_node(path: Path, kind: int, device: int) -> None:
    if not path.exists():
        os.mknod(path, kind | 0o660, device)


if __name__ == "__main__":
    main()
