"""Opens a session, optionally with a directory's files in its workspace."""

from __future__ import annotations

from pathlib import Path

from codesdk.cli.api_client import ApiClient, OpenedSession
from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.console.terminal import pluralize
from codesdk.cli.session.workspace_archive import pack
from codesdk.documents import DocumentUnreadable, read_text
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import SessionId
from codesdk.policy import PolicyInvalid
from codesdk.provision.system.command import ProgressCallback
from codesdk.sandbox.profiles.loader import DEFAULT
from codesdk.sessions import NewSession


def create_session(
    daemon: ApiClient,
    workspace: Path | None,
    *,
    mode: PermissionMode,
    opened_by: str,
    progress: ProgressCallback,
    runtime: str = "mcp-client",
    profile: str = DEFAULT,
    rules: Path | None = None,
    watch: bool = False,
    from_session: str | None = None,
    snapshots: bool | None = None,
    git_depth: int | None = None,
) -> OpenedSession:
    """Open a session, labelled with the command that opened it. `git_depth`: see `workspace_archive.pack`.

    Raises:
        PolicyInvalid: the rules file can't be read.
        WorkspaceRefused, GitHistoryRefused: the directory can't be used.
        InputWrong: a history was asked for without a directory.
        Fault: the daemon's error.
    """
    seed = None
    if git_depth is not None and workspace is None:
        raise InputWrong("--git copies the history of a directory.", advice="Give the directory with --workspace.")
    if workspace is not None:
        content, files = pack(workspace, git_depth=git_depth)
        history = "" if git_depth is None else ", and its history,"
        progress(f"Copying {pluralize(files, 'file')} of {workspace}{history} into the session's workspace")
        seed = daemon.upload(content, "workspace.tar.gz").id
    labels = {"opened-by": opened_by}
    wish = NewSession(
        permission_mode=mode,
        labels=labels,
        profile=profile,
        seed_artifact=seed,
        from_session=SessionId(from_session) if from_session else None,
        snapshots=snapshots,
        runtime=runtime,
        watch=watch,
        policy=read_rules(rules) if rules is not None else None,
    )
    return daemon.open_session(wish)


def read_rules(path: Path) -> str:
    """Read a rules file. The daemon validates the content.

    Raises:
        PolicyInvalid: it can't be read.
    """
    try:
        return read_text(path)
    except DocumentUnreadable as error:
        raise PolicyInvalid.of(path, error) from error
