"""`Processes` of a sandbox, implemented by runner requests."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError

from codesdk.sandbox.channel.connection import Header, SendRequest
from codesdk.sandbox.port import ExecRequest, ExecResult, Input, Output, Process, Pty, Stream
from codesdk.sandbox.port.faults import RunnerRefused

_LIST = TypeAdapter(tuple[Process, ...])
_PIECE = 256 * 1024
"""Bytes of stdin per request, so that a cancel isn't held up."""
_LONGEST_WAIT_S = 20.0


class RunnerProcesses:
    """Background execs; see the port."""

    def __init__(
        self,
        send: SendRequest,
        start_request: Callable[[ExecRequest], tuple[Header, bytes]],
        refused: Callable[..., ExecResult | None],
    ) -> None:
        """`start_request`: builds a start's header and spec. `refused`: maps an error answer to a result."""
        self._request = send
        self._start_request = start_request
        self._refused = refused
        self._stdin_lock = threading.Lock()

    def start(self, request: ExecRequest) -> Process:
        """Start it; see the port."""
        header, spec = self._start_request(request)
        # Starts are idempotent, so `repeat` is safe.
        answer, _ = self._request({**header, "quiet": True}, spec + request.stdin, repeat=True)
        failed = self._refused(answer, request)
        if failed is None:
            found = next((item for item in self.list() if (item.call, item.attempt) == _key(request)), None)
            if found is None:
                raise RunnerRefused("The runner does not list the exec that it started")
            return found
        return Process(call=request.call, attempt=request.attempt, argv=request.argv, background=True, result=failed)

    def list(self) -> tuple[Process, ...]:
        """Every exec that is not acknowledged; see the port."""
        _, data = self._request({"op": "execs"}, repeat=True)
        try:
            return _LIST.validate_json(data)
        except ValidationError as error:
            raise RunnerRefused(f"The runner's list of execs is malformed: {error}") from error

    def output(
        self, call: str, attempt: int, stream: Stream, offset: int, *, length: int = 65_536, wait_s: float = 0.0
    ) -> Output | None:
        """Output from an offset; see the port."""
        header = {
            "op": "output", "call": call, "attempt": attempt, "stream": stream, "offset": offset, "length": length,
            "wait_s": min(wait_s, _LONGEST_WAIT_S),
        }  # fmt: skip
        answer, data = self._request(header, repeat=True)
        if not _is_known(answer):
            return None
        at = _number(answer, "offset")
        if at < offset and data:
            raise RunnerRefused(f"The runner answered output of offset {at} where {offset} was asked for")
        return Output(offset=at, data=data, seen=_number(answer, "seen"), over=answer.get("over") is True)

    def write(self, call: str, attempt: int, data: bytes, *, end: bool = False, wait_s: float = 20.0) -> Input | None:
        """Stdin, in pieces that the runner has room for; see the port."""
        view = memoryview(data)
        place = 0
        with self._stdin_lock:
            found = self._write_stdin(call, attempt, None, b"", end=False, wait_s=0.0)
            idle_since = time.monotonic()
            while found is not None and found.open and (place < len(view) or end):
                piece = bytes(view[place : place + _PIECE])
                is_last = end and place + len(piece) == len(view)
                before = found.offset
                found = self._write_stdin(call, attempt, before, piece, end=is_last, wait_s=min(1.0, wait_s))
                if found is None:
                    break
                taken = found.offset - before
                if not 0 <= taken <= len(piece):
                    raise RunnerRefused(f"The runner took {taken} bytes of {len(piece)}")
                place += taken
                if taken:
                    idle_since = time.monotonic()
                if is_last and taken == len(piece):
                    break
                if time.monotonic() - idle_since > wait_s:
                    break
        return found

    def _write_stdin(self, call: str, attempt: int, offset: int | None, piece: bytes, **more: Any) -> Input | None:
        header = {"op": "input", "call": call, "attempt": attempt, "offset": offset, **more}
        # The offset makes it idempotent.
        answer, _ = self._request(header, piece, repeat=True)
        if not _is_known(answer):
            return None
        return Input(offset=_number(answer, "offset"), open=answer.get("open") is True)

    def signal(self, call: str, attempt: int, number: int) -> bool:
        """Send a signal to the whole tree; see the port."""
        answer, _ = self._request({"op": "signal", "call": call, "attempt": attempt, "signal": number})
        return _is_known(answer) and answer.get("sent") is True

    def resize(self, call: str, attempt: int, size: Pty) -> bool:
        """Change the size of its terminal; see the port."""
        header = {"op": "resize", "call": call, "attempt": attempt, "rows": size.rows, "cols": size.cols}
        answer, _ = self._request(header, repeat=True)
        return _is_known(answer) and answer.get("resized") is True


def _key(request: ExecRequest) -> tuple[str, int]:
    return request.call, request.attempt


def _is_known(answer: Header) -> bool:
    if answer.get("error") == "NO_SUCH_EXEC":
        return False
    if "error" in answer:
        raise RunnerRefused(f"The runner refused a request about an exec: {answer}")
    return True


def _number(answer: Header, name: str) -> int:
    found = answer.get(name)
    if not isinstance(found, builtins.int) or found < 0:
        raise RunnerRefused(f"The runner's answer has no {name}: {answer}")
    return found
