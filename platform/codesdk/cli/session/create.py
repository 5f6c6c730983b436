"""Opens a session, optionally with a directory's files in its workspace."""

from __future__ import annotations

from pathlib import Path

from codesdk.cli.api_client import ApiClient, OpenedSession
from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.console.terminal import pluralize
from codesdk.client.workspace_archive import pack
from codesdk.documents import DocumentUnreadable, read_text
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import SessionId
from codesdk.policy import PolicyInvalid
from codesdk.provision.system.command import ProgressCallback
from codesdk.sandbox.profiles.loader import DEFAULT
from codesdk.sessions import NewSession, Session

MAX_LABEL_CHARS = 200
WORKSPACE_LABEL = "workspace"
"""Label of a session with the directory that its workspace was copied from."""


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
    labels = {"opened-by": opened_by} | ({} if workspace is None else {WORKSPACE_LABEL: _label(workspace)})
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


def describe_workspace(session: Session) -> str:
    """What the session's agent sees, as the end of a sentence."""
    if session.opened_from is not None:
        return f"the last snapshot of {session.opened_from}"
    copied = session.labels.get(WORKSPACE_LABEL)
    return (
        f"a copy of {copied}"
        if copied
        else "an empty workspace (--workspace DIR copies a directory into a new session)"
    )


def _label(workspace: Path) -> str:
    """Its absolute path, cut at the front to a label's length. What is no text becomes `?`."""
    return str(workspace.resolve()).encode("utf-8", "replace").decode()[-MAX_LABEL_CHARS:]


def read_rules(path: Path) -> str:
    """Read a rules file. The daemon validates the content.

    Raises:
        PolicyInvalid: it can't be read.
    """
    try:
        return read_text(path)
    except DocumentUnreadable as error:
        raise PolicyInvalid.of(path, error) from error
