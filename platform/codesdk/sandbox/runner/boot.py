"""Entry point of the runner: does the set-up that needs root, drops privileges, then runs the loop of `main`."""

from __future__ import annotations

import os

from codesdk.sandbox.runner import kernel
from codesdk.sandbox.runner.execution import probe
from codesdk.sandbox.runner.execution.subreaper import Config, ForkServer
from codesdk.sandbox.runner.main import Runner
from codesdk.sandbox.runner.protocol import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main(text: str) -> None:
    """Start the runner with settings as JSON (see `spec.runner_settings`). Does not return."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    # Keeps stdout for the protocol: a stray print would corrupt a frame.
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    kernel.hide_memory()
    kernel.use_one_arena()
    settings = wire.load_json(text.encode())
    runner = Runner(settings, prepare(settings), read_fd, write_fd)
    kernel.trim_memory()  # compiling the modules needs three times their own memory
    try:
        runner.run()
    except SystemExit as end:
        os.write(2, (f"codesdk runner: {end.code}\n").encode())
        os._exit(1)


def prepare(settings: dict[str, Any]) -> ForkServer:
    """Take ownership of the workspace, then drop capabilities."""
    uid, gid, workspace = int(settings["uid"]), int(settings["gid"]), str(settings["workspace"])
    probe.CGROUP = settings.get("cgroup", probe.CGROUP)
    config = Config(uid, gid, workspace, settings["limits"])
    if config.has_own_uid:
        owner = {"rw": (uid, gid), "ro": (kernel.SEED_UID, kernel.SEED_UID)}.get(
            settings.get("workspace_mode", "rw"), (0, 0)
        )
        own_workspace(workspace, *owner)
        kernel.keep_capabilities((kernel.KILL, kernel.SETGID, kernel.SETUID))
    kernel.become_subreaper()
    return ForkServer(config)


def own_workspace(workspace: str, uid: int, gid: int) -> None:
    """Chown the workspace's root directory, which root owns in a new volume. Not recursive; refuses a symlink."""
    fd = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid != uid:
            os.fchown(fd, uid, gid)
    finally:
        os.close(fd)
