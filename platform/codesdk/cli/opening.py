"""Opens a session, with a directory's files in its workspace where one is given."""

from __future__ import annotations

from pathlib import Path

from codesdk.cli.daemon import Daemon, Opened
from codesdk.cli.workspace import pack
from codesdk.domain.decisions import PermissionMode
from codesdk.provision.command import Say
from codesdk.sandbox.profiles import DEFAULT
from codesdk.sessions import NewSession


def open_with(
    daemon: Daemon,
    workspace: Path | None,
    *,
    mode: PermissionMode,
    opened_by: str,
    say: Say,
    runtime: str = "mcp-client",
    profile: str = DEFAULT,
) -> Opened:
    """A new session, labelled with who opened it.

    Raises:
        WorkspaceRefused: the directory cannot be taken.
        Fault: what the daemon answers.
    """
    seed = None
    if workspace is not None:
        content, files = pack(workspace)
        say(f"Copying {files} files of {workspace} into the session's workspace")
        seed = daemon.upload(content, "workspace.tar.gz").id
    labels = {"opened-by": opened_by}
    wish = NewSession(permission_mode=mode, labels=labels, profile=profile, seed_artifact=seed, runtime=runtime)
    return daemon.open_session(wish)
