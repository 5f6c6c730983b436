# Generated from codesdk.client.aio by scripts/sync_client.py. Do not edit.
"""The client of an installation, and the sessions that it opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack
from uuid import uuid4

from codesdk.client import requests
from codesdk.client.call_output import APPROVAL_REQUESTED, CALL_END, SESSION_CLOSED, OutputFilter
from codesdk.client.connection import find_connection
from codesdk.client.models import Approval, Artifact, Call, Event, OpenedSession, SessionInfo, Tool
from codesdk.client.requests import SessionOptions
from codesdk.client.retries import Retries
from codesdk.client.sync.concurrency import finish, resolve, save
from codesdk.client.sync.files import Files
from codesdk.client.sync.transport import Transport
from codesdk.client.workspace_archive import pack

OnOutput = Callable[[str], None]
"""Takes a piece of a command's output, standard output and standard error alike, as it appears."""
OnApproval = Callable[[Approval], bool | None]
"""Answers an approval: True approves, False rejects, None leaves it to others."""


class Client:
    """A client of one installation. Use it as a context manager, or close it."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        data_dir: Path | None = None,
        retries: Retries | None = None,
    ) -> None:
        """Create a client; it connects with its first request.

        Args:
            url: the API's address. None: `CODESDK_API_URL`, else the daemon that runs on `data_dir`.
            api_key: None: `CODESDK_API_KEY`, else the key that the daemon on this machine wrote.
            data_dir: the data directory of a daemon on this machine. None: `CODESDK_DATA_DIR`, else the default.
            retries: how often requests are sent again, if that is safe.

        Raises:
            NoConnection: there is no address or no key.
        """
        found = find_connection(url, api_key, data_dir)
        self._transport = Transport(found.url, found.key, retries or Retries())

    def __enter__(self) -> Self:
        """Close the connections at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The API's address."""
        return self._transport.url

    def close(self) -> None:
        """Close the connections. Sessions stay open."""
        self._transport.close()

    @contextmanager
    def session(
        self, workspace: str | Path | None = None, *, git_depth: int | None = None, **options: Unpack[SessionOptions]
    ) -> Iterator[Session]:
        """Open a session for a `with` block, and close it at the end. Arguments and errors: see `open_session`."""
        with self.open_session(workspace, git_depth=git_depth, **options) as session:
            yield session

    def open_session(
        self, workspace: str | Path | None = None, *, git_depth: int | None = None, **options: Unpack[SessionOptions]
    ) -> Session:
        """Open a session, which stays open until it is closed.

        Args:
            workspace: a directory whose files the workspace starts with, as a copy. In a git work tree: the files that
                git tracks or would add.
            git_depth: commits of the current branch to copy, too; 0: all; None: no history.
            options: see `SessionOptions`.

        Raises:
            ApiError: the API's reason.
            WorkspaceRefused, GitHistoryRefused: the directory can't be copied.
        """
        body: dict[str, Any] = {**options}
        if workspace is not None:
            content, _ = pack(Path(workspace), git_depth=git_depth)
            upload = requests.upload_artifact(content, "workspace.tar.gz", "application/gzip", None)
            body["seed_artifact"] = (self._transport.send(upload)).id
        opened = self._transport.send(requests.open_session(body))
        return Session(self._transport, opened.session, opened)

    def attach(self, session_id: str) -> Session:
        """An open session of yours that was opened before. Leaving its `with` block closes it.

        Raises:
            ApiError: the API's reason.
        """
        return Session(self._transport, self._transport.send(requests.read_session(session_id)))

    def sessions(self, limit: int = 100) -> list[SessionInfo]:
        """The tenant's sessions, newest first."""
        return self._transport.send(requests.list_sessions(limit))

    def tools(self) -> list[Tool]:
        """The tools that sessions can call."""
        return self._transport.send(requests.list_tools())

    def approvals(self, *, state: str | None = "pending", session_id: str | None = None) -> list[Approval]:
        """Up to 200 approvals, newest first. `state`: None for all."""
        return self._transport.send(requests.list_approvals(session_id, state))

    def approve(self, approval: Approval, comment: str | None = None) -> Approval:
        """Approve exactly what `approval` shows.

        Raises:
            ApiError: it was answered before, or you may not answer it.
        """
        return self._transport.send(requests.vote(approval, approve=True, comment=comment))

    def reject(self, approval: Approval, comment: str | None = None) -> Approval:
        """Reject it. The agent reads the comment.

        Raises:
            ApiError: it was answered before, or you may not answer it.
        """
        return self._transport.send(requests.vote(approval, approve=False, comment=comment))

    def artifacts(self, session_id: str | None = None) -> Iterator[Artifact]:
        """All artifacts, newest first."""
        after = None
        while page := self._transport.send(requests.list_artifacts(session_id, after)):
            for artifact in page:
                yield artifact
            after = page[-1].id

    def download_artifact(self, artifact_id: str, target: str | Path) -> int:
        """Write an artifact's bytes to a file and return how many they are.

        Raises:
            ApiError: the API's reason.
        """
        with self._transport.download(f"/v1/artifacts/{artifact_id}") as response:
            return save(response, Path(target))


class Session:
    """A session: a sandbox with a workspace, and a record of all that happens in it.

    In a `with` block it is closed at the end.
    """

    def __init__(self, transport: Transport, info: SessionInfo, opened: OpenedSession | None = None) -> None:
        """Use `Client.session`, `Client.open_session` or `Client.attach`."""
        self._transport = transport
        self._opened = opened
        self._on_approval: OnApproval | None = None
        self.files = Files(transport, info.id, self._wait_for_id)
        """The files of its workspace."""
        self.info = info
        """The record, as it was when the session was opened or `refresh` was called."""

    def __enter__(self) -> Self:
        """Close the session at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def id(self) -> str:
        """The session's id."""
        return self.info.id

    def refresh(self) -> SessionInfo:
        """Read the record again."""
        self.info = self._transport.send(requests.read_session(self.id))
        return self.info

    def close(self) -> None:
        """Close the session: end its calls, remove its sandbox. The record stays. Closing it twice does nothing."""
        self.info = self._transport.send(requests.close_session(self.id))

    def agent_access(self) -> OpenedSession:
        """The MCP address and a token, for an agent that is to work in this session.

        Raises:
            ApiError: the session is closed, or not yours.
        """
        if self._opened is None:
            self._opened = self._transport.send(requests.issue_token(self.id))
        return self._opened

    def on_approval(self, decide: OnApproval | None) -> None:
        """Answer approvals of calls that this object makes: `decide` is called with each. None: leave them to others.

        Agents' calls in this session are not seen; answer those with `Client.approvals`.
        """
        self._on_approval = decide

    def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        stdin: str | None = None,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
    ) -> Call:
        """Run a command in the sandbox and wait for its end. A denied or failed one is a result: see `Call.ok`.

        Args:
            command: a line for the shell, or a list of a program and its arguments, run without a shell.
            cwd: directory in the workspace. None: its root.
            stdin: text for its standard input.
            timeout_s: seconds after which it is ended. None: the profile's limit.
            on_output: called with each piece of output as it appears.

        Raises:
            ApiError: the call couldn't be made.
        """
        arguments = requests.command_input(command, cwd=cwd, stdin=stdin, timeout_s=timeout_s)
        return self.call("workspace.exec", arguments, on_output=on_output)

    def call(
        self, tool: str, arguments: Mapping[str, Any], *, on_output: OnOutput | None = None, key: str | None = None
    ) -> Call:
        """Make a tool call and wait for its end. If this is interrupted, the call is cancelled.

        Args:
            tool: the tool's name, such as `workspace.read`.
            arguments: its input.
            on_output: called with each piece of output as it appears.
            key: your own id of the call; another one with the same id joins it instead of running again.

        Raises:
            ApiError: the call couldn't be made.
        """
        live = on_output is not None or self._on_approval is not None
        submit = requests.submit_call(self.id, tool, arguments, key=key or uuid4().hex, detach=live)
        call = self._transport.send(submit)
        try:
            return self.wait(call, on_output=on_output)
        except BaseException:
            # Whatever ends the wait (Ctrl-C, a callback's error), nobody is left who wants the result.
            finish(self._transport.send(requests.cancel_call(self.id, call.tool_call_id)))
            raise

    def start_call(self, tool: str, arguments: Mapping[str, Any], *, key: str | None = None) -> Call:
        """Start a call that goes on whether or not you wait for it; `wait` gets its result.

        Raises:
            ApiError: the call couldn't be made.
        """
        submit = requests.submit_call(self.id, tool, arguments, key=key or uuid4().hex, detach=True)
        return self._transport.send(submit)

    def wait(self, call: Call, *, on_output: OnOutput | None = None) -> Call:
        """Wait for the end of a call that was started before.

        Raises:
            ApiError: the call is not known.
        """
        if call.ended:
            return call
        output = OutputFilter()
        for event in self._follow(f"/v1/sessions/{self.id}/calls/{call.tool_call_id}/events"):
            text = output.new_text(event)
            if text and on_output is not None:
                resolve(on_output(text))
            if event.type == APPROVAL_REQUESTED:
                self._answer(str(event.payload["approval_id"]))
            if event.type in CALL_END:
                # A lost attempt ends like this, too, and another follows.
                found = self.find_call(call.tool_call_id)
                if found.ended:
                    return found
        return self.find_call(call.tool_call_id)

    def cancel(self, call: Call) -> Call:
        """Cancel a call: a waiting one is denied, a running one is ended."""
        return self._transport.send(requests.cancel_call(self.id, call.tool_call_id))

    def find_call(self, call_id: str) -> Call:
        """A call's state, and its result once it has ended.

        Raises:
            ApiError: there is no such call.
        """
        return self._transport.send(requests.read_call(self.id, call_id))

    def calls(self, *, state: str | None = None, tool: str | None = None) -> Iterator[Call]:
        """The session's calls, newest first."""
        after: str | None = None
        while True:
            page, after = self._transport.send(requests.list_calls(self.id, {"state": state, "tool": tool}, after))
            for call in page:
                yield call
            if not page or after is None:
                return

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Every event of the session's log after `seq` `after`, then new ones as they happen.

        Reconnects by itself, loses and repeats nothing. Ends with the event that the session is closed.

        Raises:
            ApiError: the API refuses it, or stays unreachable.
        """
        for event in self._follow(f"/v1/sessions/{self.id}/events", str(after)):
            yield event
            if event.type == SESSION_CLOSED:
                return

    def _follow(self, path: str, cursor: str | None = None) -> Iterator[Event]:
        for message in self._transport.follow(path, cursor):
            if message.event == "message" and message.data:
                yield Event.model_validate_json(message.data)

    def _wait_for_id(self, call_id: str) -> Call:
        return self.wait(self.find_call(call_id))

    def _answer(self, approval_id: str) -> None:
        if self._on_approval is None:
            return
        approval = self._transport.send(requests.read_approval(approval_id))
        if not approval.pending:
            return
        verdict = resolve(self._on_approval(approval))
        if verdict is not None:
            self._transport.send(requests.vote(approval, approve=bool(verdict), comment=None))
