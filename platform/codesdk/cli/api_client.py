"""The running daemon, over its HTTP API."""

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
from codesdk.cli.stack.operator_key import operator_key
from codesdk.domain.events import Event
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault
from codesdk.policy.rollout.version_models import SHARED
from codesdk.sessions import NewSession, Session, SessionSandbox
from codesdk.settings import Settings, runfile

TIMEOUT = httpx2.Timeout(30.0, connect=5.0)
STREAM_TIMEOUT = httpx2.Timeout(30.0, connect=5.0, read=60.0)
"""Seconds; a stream sends a comment every 15, so silence of 60 is a dead connection."""
UPLOAD_TIMEOUT = httpx2.Timeout(30.0, connect=5.0, read=600.0)
"""Seconds; the answer comes when the bytes are durable, which a store far away takes its time for."""
PAGE = 500
RECONNECT_S = 1.0


class NotRunning(Fault):
    """No daemon answers."""

    code = "NOT_RUNNING"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


class OpenedSession(FrozenModel):
    """A new session, with what its agent connects with."""

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
        """Use it until the block ends."""
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def open_session(self, wish: NewSession) -> OpenedSession:
        """A new session."""
        return OpenedSession.model_validate(self.request("POST", "/v1/sessions", json=wish.model_dump(mode="json")))

    def session(self, session: str) -> Session:
        """One session."""
        return Session.model_validate(self.request("GET", f"/v1/sessions/{session}"))

    def sessions(self, limit: int = 100) -> list[Session]:
        """Newest first."""
        found = self.request("GET", "/v1/sessions", params={"limit": limit})["sessions"]
        return [Session.model_validate(item) for item in found]

    def pinned_policy(self) -> str | None:
        """The hash of the version that decides in place of the shared files; None where the files do."""
        found = self.request("GET", "/v1/policy/versions", params={"layer": SHARED})["pinned"]
        return str(found) if found else None

    def close_session(self, session: str) -> Session:
        """End it."""
        return Session.model_validate(self.request("DELETE", f"/v1/sessions/{session}"))

    def sandbox(self, session: str, turn: Literal["stop", "start"] | None = None) -> SessionSandbox:
        """How its sandbox is; `turn`: after asking for that."""
        where = f"/v1/sessions/{session}/sandbox"
        answer = self.request("POST", f"{where}/{turn}") if turn else self.request("GET", where)
        return SessionSandbox.model_validate(answer)

    def upload(self, content: bytes, name: str, content_type: str = "application/gzip") -> Artifact:
        """Keep bytes as an artifact."""
        return self.send(iter((content,)), name, content_type)

    def send(self, pieces: Iterator[bytes], name: str, content_type: str, session: str | None = None) -> Artifact:
        """Keep bytes that come in pieces as an artifact."""
        params = {"name": name, **({"session_id": session} if session else {})}
        headers = {"Content-Type": content_type}
        sent = self.request(
            "POST", "/v1/artifacts", content=pieces, params=params, headers=headers, timeout=UPLOAD_TIMEOUT
        )
        return Artifact.model_validate(sent)

    def artifacts(self, session: str | None = None) -> Iterator[Artifact]:
        """Newest first, all of them."""
        params: dict[str, Any] = {"limit": PAGE, **({"session_id": session} if session else {})}
        while page := self.request("GET", "/v1/artifacts", params=params)["artifacts"]:
            yield from (Artifact.model_validate(item) for item in page)
            params["after"] = page[-1]["id"]

    @contextmanager
    def download(self, artifact: str) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Its hash, and its bytes as they come; the caller checks them."""
        try:
            with self._http.stream("GET", f"/v1/artifacts/{artifact}") as response:
                if response.is_error:
                    response.read()
                    raise fault_from_response(response)
                yield response.headers["etag"].strip('"'), response.iter_raw()
        except httpx2.TransportError as error:
            raise _unreachable(self.url) from error

    def delete_artifact(self, artifact: str) -> Artifact:
        """Remove its record."""
        return Artifact.model_validate(self.request("DELETE", f"/v1/artifacts/{artifact}"))

    def pending(self, session: str | None = None) -> Iterator[Approval]:
        """All that waits, newest first."""
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
        """Newest first, at most 200. `before`: the last one of the page before."""
        asked = {"state": state.value if state else None, "session_id": session, "rule": rule, "before": before}
        params = {name: value for name, value in asked.items() if value}
        found = self.request("GET", "/v1/approvals", params=params)["approvals"]
        return [Approval.model_validate(item) for item in found]

    def approval(self, approval: str) -> Approval:
        """One approval."""
        return Approval.model_validate(self.request("GET", f"/v1/approvals/{approval}"))

    def grants(self, session: str | None = None, *, active: bool = False) -> list[Grant]:
        """Newest first, at most 200."""
        params = {"active": active, **({"session_id": session} if session else {})}
        return [Grant.model_validate(item) for item in self.request("GET", "/v1/grants", params=params)["grants"]]

    def revoke_grant(self, grant: str) -> Grant:
        """End it."""
        return Grant.model_validate(self.request("DELETE", f"/v1/grants/{grant}"))

    def vote(
        self, shown: Approval, verdict: Verdict, comment: str | None = None, wish: GrantRequest | None = None
    ) -> Approval:
        """Answer exactly what was shown."""
        body: dict[str, Any] = {"verdict": verdict.value, "digest": shown.digest, "comment": comment}
        if wish is not None:
            body["grant"] = wish.model_dump(mode="json")
        return Approval.model_validate(self.request("POST", f"/v1/approvals/{shown.id}/decision", json=body))

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        """The log after `after`, to its present end."""
        while True:
            params: dict[str, Any] = {"limit": PAGE, "after": str(after)}
            page = self.request("GET", f"/v1/sessions/{session}/events", params=params)
            for item in page["events"]:
                event = Event.model_validate(item)
                after = event.seq
                yield event
            # A page may be short: the next one then says why.
            if after >= page["head"]:
                return

    def follow(self, session: str, after: int = 0, ended: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """The log after `after`, then every event as it comes, across interruptions, until `ended`.

        Raises:
            Fault: the first connection is refused, or the daemon stays away.
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
        """What happens to approvals, across interruptions, until `ended`. None: list what waits now; what comes is told.

        `hold` gets each connection that is read from, and None when it is over: shut down, it ends the reading.

        Raises:
            Fault: the first connection is refused, or the daemon stays away.
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
            return  # the stream broke; the caller's loop asks for the rest

    def request(self, method: str, path: str, **request: Any) -> Any:
        """One request; what the JSON of the answer says.

        Raises:
            NotRunning: nothing answers. Fault: what the problem in the answer says.
        """
        try:
            response = self._http.request(method, path, **request)
        except httpx2.TransportError as error:
            raise _unreachable(self.url) from error
        if response.is_error:
            raise fault_from_response(response)
        return response.json()


def connect(settings: Settings) -> ApiClient:
    """The daemon of this data directory.

    Raises:
        NotRunning: none says that it runs.
        NoOperatorKey: its key cannot be read.
    """
    said = runfile.read(settings.data_dir, "api")
    if said is None:
        raise NotRunning(
            f"CodeSDK is not running on {settings.data_dir}.",
            advice="Start it with `codesdk up`, or name its --data-dir.",
        )
    return ApiClient(str(said["url"]), operator_key(settings.data_dir, settings.operator_key_file))


def fault_from_response(response: httpx2.Response) -> Fault:
    """What the API's problem says, as a fault with its code and a fitting exit code."""
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
        "__doc__": "What the daemon answered.",
    }
    kind: type[Fault] = type("Answered", (Fault,), described)
    message = str(problem.get("detail") or f"The daemon answered HTTP {response.status_code}.")
    return kind(message, advice=str(problem.get("advice", "")), details=problem.get("details") or {})


def _exit_code(status: int) -> ExitCode:
    if status in (httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN):
        return ExitCode.NO_PERMISSION
    return ExitCode.UNAVAILABLE if httpx2.codes.is_server_error(status) else ExitCode.FAILED


def _unreachable(url: str) -> NotRunning:
    return NotRunning(f"The daemon at {url} does not answer.", advice="See whether `codesdk up` still runs.")
