"""HTTP client of the running daemon."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Self

import httpx2

from codesdk.approvals import Approval, ApprovalState, Grant, GrantRequest, Verdict
from codesdk.approvals.feed import FeedEntry
from codesdk.artifacts import Artifact
from codesdk.domain.events import Event
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault
from codesdk.policy.rollout.version_models import SHARED
from codesdk.sessions import NewSession, Session, SessionSandbox
from codesdk.settings import Settings, runfile
from codesdk.settings.operator_key import operator_key

TIMEOUT = httpx2.Timeout(30.0, connect=5.0)
STREAM_TIMEOUT = httpx2.Timeout(30.0, connect=5.0, read=60.0)
"""Seconds; a stream sends a comment every 15, so silence of 60 is a dead connection."""
UPLOAD_TIMEOUT = httpx2.Timeout(30.0, connect=5.0, read=600.0)
"""Seconds; the response comes once the bytes are durable, which takes a remote store a while."""
PAGE = 500
RECONNECT_S = 1.0


class NotRunning(Fault):
    """No daemon answers."""

    code = "NOT_RUNNING"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


class OpenedSession(FrozenModel):
    """A session with its agent's token and MCP URL."""

    session: Session
    token: str
    mcp_url: str


class ApiClient:
    """A client with the operator's key. Safe to use from several threads."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {key}"}
        # No proxy from the environment: the daemon is on this machine.
        self._http = httpx2.Client(base_url=url, headers=headers, timeout=TIMEOUT, trust_env=False)

    def __enter__(self) -> Self:
        """Close the connections at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def open_session(self, wish: NewSession) -> OpenedSession:
        """Open a session."""
        return OpenedSession.model_validate(self.request("POST", "/v1/sessions", json=wish.model_dump(mode="json")))

    def issue_token(self, session: str) -> OpenedSession:
        """One more token for an open session of the operator's."""
        return OpenedSession.model_validate(self.request("POST", f"/v1/sessions/{session}/tokens"))

    def session(self, session: str) -> Session:
        """Get one session."""
        return Session.model_validate(self.request("GET", f"/v1/sessions/{session}"))

    def sessions(self, limit: int = 100) -> list[Session]:
        """List sessions, newest first."""
        found = self.request("GET", "/v1/sessions", params={"limit": limit})["sessions"]
        return [Session.model_validate(item) for item in found]

    def pinned_policy(self) -> str | None:
        """The hash of the promoted policy version; None if the policy files are in force."""
        found = self.request("GET", "/v1/policy/versions", params={"layer": SHARED})["pinned"]
        return str(found) if found else None

    def close_session(self, session: str) -> Session:
        """Close a session."""
        return Session.model_validate(self.request("DELETE", f"/v1/sessions/{session}"))

    def sandbox(self, session: str, turn: Literal["stop", "start"] | None = None) -> SessionSandbox:
        """The state of the session's sandbox, after the change if `turn` is given."""
        where = f"/v1/sessions/{session}/sandbox"
        answer = self.request("POST", f"{where}/{turn}") if turn else self.request("GET", where)
        return SessionSandbox.model_validate(answer)

    def upload(self, content: bytes, name: str, content_type: str = "application/gzip") -> Artifact:
        """Upload bytes as an artifact."""
        return self.send(iter((content,)), name, content_type)

    def send(self, pieces: Iterator[bytes], name: str, content_type: str, session: str | None = None) -> Artifact:
        """Upload an artifact in chunks."""
        params = {"name": name, **({"session_id": session} if session else {})}
        headers = {"Content-Type": content_type}
        sent = self.request(
            "POST", "/v1/artifacts", content=pieces, params=params, headers=headers, timeout=UPLOAD_TIMEOUT
        )
        return Artifact.model_validate(sent)

    def artifacts(self, session: str | None = None) -> Iterator[Artifact]:
        """List all artifacts, newest first."""
        params: dict[str, Any] = {"limit": PAGE, **({"session_id": session} if session else {})}
        while page := self.request("GET", "/v1/artifacts", params=params)["artifacts"]:
            yield from (Artifact.model_validate(item) for item in page)
            params["after"] = page[-1]["id"]

    @contextmanager
    def download(self, artifact: str) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Its content hash and its bytes as chunks. The caller verifies the hash."""
        try:
            with self._http.stream("GET", f"/v1/artifacts/{artifact}") as response:
                if response.is_error:
                    response.read()
                    raise fault_from_response(response)
                yield response.headers["etag"].strip('"'), response.iter_raw()
        except httpx2.TransportError as error:
            raise _unreachable(self.url) from error

    def delete_artifact(self, artifact: str) -> Artifact:
        """Delete an artifact's record."""
        return Artifact.model_validate(self.request("DELETE", f"/v1/artifacts/{artifact}"))

    def pending(self, session: str | None = None) -> Iterator[Approval]:
        """List all pending approvals, newest first."""
        page = self.approvals(ApprovalState.PENDING, session)
        while page:
            yield from page
            page = self.approvals(ApprovalState.PENDING, session, before=page[-1].id)

    def approvals(
        self,
        state: ApprovalState | None = None,
        session: str | None = None,
        rule: str | None = None,
        before: str | None = None,
    ) -> list[Approval]:
        """List up to 200 approvals, newest first. `before`: id of the last one of the previous page."""
        filters = {"state": state.value if state else None, "session_id": session, "rule": rule, "before": before}
        params = {name: value for name, value in filters.items() if value}
        found = self.request("GET", "/v1/approvals", params=params)["approvals"]
        return [Approval.model_validate(item) for item in found]

    def approval(self, approval: str) -> Approval:
        """Get one approval."""
        return Approval.model_validate(self.request("GET", f"/v1/approvals/{approval}"))

    def grants(self, session: str | None = None, *, active: bool = False) -> list[Grant]:
        """List up to 200 grants, newest first."""
        params = {"active": active, **({"session_id": session} if session else {})}
        return [Grant.model_validate(item) for item in self.request("GET", "/v1/grants", params=params)["grants"]]

    def revoke_grant(self, grant: str) -> Grant:
        """Revoke a grant."""
        return Grant.model_validate(self.request("DELETE", f"/v1/grants/{grant}"))

    def vote(
        self, shown: Approval, verdict: Verdict, comment: str | None = None, wish: GrantRequest | None = None
    ) -> Approval:
        """Vote on the approval; the vote names its digest, so it applies to exactly what `shown` contains."""
        body: dict[str, Any] = {"verdict": verdict.value, "digest": shown.digest, "comment": comment}
        if wish is not None:
            body["grant"] = wish.model_dump(mode="json")
        return Approval.model_validate(self.request("POST", f"/v1/approvals/{shown.id}/decision", json=body))

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        """The events after `after`, up to the current end of the log."""
        while True:
            params: dict[str, Any] = {"limit": PAGE, "after": str(after)}
            page = self.request("GET", f"/v1/sessions/{session}/events", params=params)
            for item in page["events"]:
                event = Event.model_validate(item)
                after = event.seq
                yield event
            # A page may be short; the next request returns the reason.
            if after >= page["head"]:
                return

    def follow(self, session: str, after: int = 0, ended: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """The events after `after`, then new events as they arrive, with reconnects, until `ended`.

        Raises:
            Fault: the first connection is refused, or the daemon doesn't come back.
        """
        place = str(after)
        while not ended():
            for event, cursor in self._stream(session, place):
                place = cursor
                yield event
            time.sleep(RECONNECT_S)

    def follow_approvals(
        self, session: str | None, hold: Callable[[socket.socket | None], None], ended: Callable[[], bool]
    ) -> Iterator[FeedEntry | None]:
        """Changes of approvals, with reconnects, until `ended`. None: list pending approvals now; later changes follow.

        `hold` receives each open connection, and None when it closes. Shutting it down ends the iteration.

        Raises:
            Fault: the first connection is refused, or the daemon doesn't come back.
        """
        place: str | None = None
        params = {"session_id": session} if session else {}
        while not ended():
            for item in self._frames("/v1/approvals/events", place, params, hold):
                place = item.id or place
                if item.event in ("start", "resync"):
                    yield None
                elif item.event.startswith("approval.") and item.data:
                    yield FeedEntry.model_validate_json(item.data)
            if not ended():
                time.sleep(RECONNECT_S)

    def _stream(self, session: str, place: str) -> Iterator[tuple[Event, str]]:
        for item in self._frames(f"/v1/sessions/{session}/events", place):
            if item.event == "message" and item.data:
                yield Event.model_validate_json(item.data), item.id

    def _frames(
        self,
        path: str,
        place: str | None,
        params: Mapping[str, str] | None = None,
        hold: Callable[[socket.socket | None], None] = lambda _: None,
    ) -> Iterator[httpx2.ServerSentEvent]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": place} if place is not None else {})}
        try:
            with self._http.stream(
                "GET", path, headers=headers, params=dict(params or {}), timeout=STREAM_TIMEOUT
            ) as response:
                if response.is_error:
                    response.read()
                    raise fault_from_response(response)
                hold(response.extensions["network_stream"].get_extra_info("socket"))
                try:
                    yield from httpx2.EventSource(response)
                finally:
                    hold(None)
        except httpx2.ConnectError as error:
            raise _unreachable(self.url) from error
        except httpx2.TransportError:
            return  # the stream broke; the caller reconnects

    def request(self, method: str, path: str, **request: Any) -> Any:
        """Send a request and return its JSON.

        Raises:
            NotRunning: nothing answers. Fault: the response is an error.
        """
        try:
            response = self._http.request(method, path, **request)
        except httpx2.TransportError as error:
            raise _unreachable(self.url) from error
        if response.is_error:
            raise fault_from_response(response)
        return response.json()


def connect(settings: Settings) -> ApiClient:
    """A client of the daemon that runs on this data directory.

    Raises:
        NotRunning: no daemon runs there.
        NoOperatorKey: its key cannot be read.
    """
    content = runfile.read(settings.data_dir, "api")
    if content is None:
        raise NotRunning(
            f"CodeSDK is not running on {settings.data_dir}.",
            advice="Start it with `codesdk up`, or choose its --data-dir.",
        )
    return ApiClient(str(content["url"]), operator_key(settings.data_dir, settings.operator_key_file))


def fault_from_response(response: httpx2.Response) -> Fault:
    """Turn the API's problem+json into a fault with its code and a matching exit code."""
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    described = {
        "code": str(problem.get("code", f"HTTP_{response.status_code}")),
        "retryable": bool(problem.get("retryable", False)),
        "status": response.status_code,
        "exit_code": _exit_code(response.status_code),
        "__doc__": "An error that the daemon returned.",
    }
    kind: type[Fault] = type("Answered", (Fault,), described)
    message = str(problem.get("detail") or f"The daemon answered HTTP {response.status_code}.")
    return kind(message, advice=str(problem.get("advice", "")), details=problem.get("details") or {})


def _exit_code(status: int) -> ExitCode:
    if status in (httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN):
        return ExitCode.NO_PERMISSION
    return ExitCode.UNAVAILABLE if httpx2.codes.is_server_error(status) else ExitCode.FAILED


def _unreachable(url: str) -> NotRunning:
    return NotRunning(f"The daemon at {url} does not answer.", advice="Check that `codesdk up` still runs.")
