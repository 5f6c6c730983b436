"""The API's requests as values, and how to read their responses. Both clients, sync and async, send these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar

from codesdk.client.models import Approval, Artifact, Call, OpenedSession, SessionInfo, Tool

T = TypeVar("T")

PAGE = 500
"""Entries of one page of a list."""
WAIT_S = 30.0
"""Seconds that one request waits for a call's end. The client then asks again, so a proxy sees no request that is longer."""
IDEMPOTENCY_KEY = "Idempotency-Key"


@dataclass(frozen=True)
class Request(Generic[T]):
    """A request, and how to read its JSON response."""

    method: str
    path: str
    read: Callable[[Any], T]
    params: Mapping[str, str | int] | None = None
    json: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] | None = None
    repeatable: bool = False
    """Whether sending it twice does the same as sending it once, so that it may be sent again after a broken connection."""
    timeout_s: float | None = None
    """Seconds for the response, if not the client's."""


class SessionOptions(TypedDict, total=False):
    """The options of a new session. All may be left out."""

    profile: str
    """The sandbox's limits, by name; `default` if missing."""
    permission_mode: str
    """`ask`, `auto` (if missing), `plan` or `yolo`."""
    labels: dict[str, str]
    """For your own use; up to 32."""
    policy: str
    """The session's own rules, as the text of a policy file. They can only ask or deny."""
    seed_artifact: str
    """Id of an artifact, a tar archive with the workspace's initial files."""
    from_session: str
    """Id of an ended session whose last snapshot the workspace starts from."""
    parallel_calls: int
    """Maximum number of calls that run at once."""
    snapshots: bool
    """Whether snapshots of the workspace are taken."""
    watch: bool
    """Whether changes of files become events."""
    runtime: str
    """Name of the program that makes the calls, for policy and the record."""


def open_session(options: Mapping[str, Any]) -> Request[OpenedSession]:
    """Open a session."""
    return Request("POST", "/v1/sessions", OpenedSession.model_validate, json=dict(options))


def issue_token(session: str) -> Request[OpenedSession]:
    """One more token for an open session, for an agent."""
    return Request("POST", f"/v1/sessions/{session}/tokens", OpenedSession.model_validate)


def read_session(session: str) -> Request[SessionInfo]:
    """A session's record."""
    return Request("GET", f"/v1/sessions/{session}", SessionInfo.model_validate, repeatable=True)


def list_sessions(limit: int) -> Request[list[SessionInfo]]:
    """The tenant's sessions, newest first."""
    return Request("GET", "/v1/sessions", _list_of(SessionInfo, "sessions"), {"limit": limit}, repeatable=True)


def close_session(session: str) -> Request[SessionInfo]:
    """Close a session."""
    return Request("DELETE", f"/v1/sessions/{session}", SessionInfo.model_validate, repeatable=True)


def submit_call(
    session: str, tool: str, arguments: Mapping[str, Any], *, key: str, wait_s: float = WAIT_S, detach: bool = False
) -> Request[Call]:
    """Make a tool call. Sent again with the same `key`, it joins the call and waits for it."""
    body: dict[str, Any] = {"tool": tool, "input": dict(arguments)}
    body |= {"detach": True} if detach else {"wait_s": wait_s}
    return Request(
        "POST",
        f"/v1/sessions/{session}/calls",
        Call.model_validate,
        json=body,
        headers={IDEMPOTENCY_KEY: key},
        repeatable=True,
        timeout_s=wait_s + WAIT_S,
    )


def read_call(session: str, call: str) -> Request[Call]:
    """A call's state, and its result once it has ended."""
    return Request("GET", f"/v1/sessions/{session}/calls/{call}", Call.model_validate, repeatable=True)


def cancel_call(session: str, call: str) -> Request[Call]:
    """Cancel a call."""
    path = f"/v1/sessions/{session}/calls/{call}/cancel"
    return Request("POST", path, lambda found: Call.model_validate(found["call"]), repeatable=True)


def list_calls(
    session: str, filters: Mapping[str, str | None], after: str | None
) -> Request[tuple[list[Call], str | None]]:
    """One page of a session's calls, newest first, and the cursor of the next page."""

    def read(found: Any) -> tuple[list[Call], str | None]:
        return [Call.model_validate(item) for item in found["calls"]], found.get("next")

    params = {"limit": PAGE, **_given({**filters, "after": after})}
    return Request("GET", f"/v1/sessions/{session}/calls", read, params, repeatable=True)


def list_approvals(session: str | None, state: str | None) -> Request[list[Approval]]:
    """Up to 200 approvals, newest first."""
    params = _given({"session_id": session, "state": state})
    return Request("GET", "/v1/approvals", _list_of(Approval, "approvals"), params, repeatable=True)


def read_approval(approval: str) -> Request[Approval]:
    """One approval."""
    return Request("GET", f"/v1/approvals/{approval}", Approval.model_validate, repeatable=True)


def vote(approval: Approval, *, approve: bool, comment: str | None) -> Request[Approval]:
    """Answer an approval. It names the digest, so it applies to exactly what `approval` shows."""
    body = {"verdict": "approve" if approve else "reject", "digest": approval.digest, "comment": comment}
    path = f"/v1/approvals/{approval.id}/decision"
    return Request("POST", path, Approval.model_validate, json=body, repeatable=True)  # a repeated vote changes nothing


def upload_artifact(content: bytes, name: str, content_type: str, session: str | None) -> Request[Artifact]:
    """Store bytes as an artifact."""
    params = _given({"name": name, "session_id": session})
    headers = {"Content-Type": content_type}
    return Request(
        "POST", "/v1/artifacts", Artifact.model_validate, params, content=content, headers=headers, timeout_s=600.0
    )


def list_artifacts(session: str | None, after: str | None) -> Request[list[Artifact]]:
    """One page of artifacts, newest first; the last one's id is the next page's `after`."""
    params = {"limit": PAGE, **_given({"session_id": session, "after": after})}
    return Request("GET", "/v1/artifacts", _list_of(Artifact, "artifacts"), params, repeatable=True)


def list_tools() -> Request[list[Tool]]:
    """The tools of the tenant."""
    return Request("GET", "/v1/tools", _list_of(Tool, "tools"), repeatable=True)


def command_input(
    command: str | Sequence[str],
    *,
    cwd: str | None = None,
    stdin: str | None = None,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """The input of `workspace.exec`. `command`: a line for the shell, or a program and its arguments without a shell."""
    what: dict[str, Any] = {"command": command} if isinstance(command, str) else {"argv": list(command)}
    more = {"cwd": cwd, "stdin": stdin, "timeout_s": timeout_s}
    return what | {name: value for name, value in more.items() if value is not None}


def _list_of(model: type[T], name: str) -> Callable[[Any], list[T]]:
    return lambda found: [model.model_validate(item) for item in found[name]]  # type: ignore[attr-defined]


def _given(params: Mapping[str, str | None]) -> dict[str, str | int]:
    return {name: value for name, value in params.items() if value is not None}
