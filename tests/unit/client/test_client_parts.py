"""The client's parts without a server: retries, errors, output, and the generated synchronous half."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.client import ApiError, ConflictError, NotFoundError, RateLimitedError, Retries, ServerError
from codesdk.client.call_output import OutputFilter
from codesdk.client.connection import NoConnection, find_connection
from codesdk.client.errors import error_of
from codesdk.client.models import Call, Event

REPOSITORY = Path(__file__).parents[3]


def test_the_synchronous_client_is_the_generated_one() -> None:
    script = [sys.executable, "scripts/sync_client.py", "--check"]
    checked = subprocess.run(script, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, NotFoundError), (410, NotFoundError), (409, ConflictError), (429, RateLimitedError), (500, ServerError)],
)
def test_an_error_is_of_its_status_kind_with_the_code_of_the_api(status: int, kind: type[ApiError]) -> None:
    problem = {"code": "SOME_CODE", "detail": "What.", "advice": "Do.", "retryable": True, "details": {"a": 1}}
    error = error_of(status, problem, "7")
    assert type(error) is kind
    assert (error.code, error.status, error.retryable, error.retry_after_s) == ("SOME_CODE", status, True, 7.0)
    assert (str(error), error.details) == ("What. Do.", {"a": 1})


def test_an_answer_that_is_no_problem_is_an_error_all_the_same() -> None:
    assert error_of(502, "<html>bad gateway</html>").code == "HTTP_502"
    assert error_of(404, None).message == "The API answered HTTP 404."


def busy(status: int = 503, retry_after: str | None = None) -> ApiError:
    return error_of(status, {"code": "BUSY", "retryable": True}, retry_after)


def test_only_what_cannot_happen_twice_is_sent_again() -> None:
    retries = Retries(attempts=3)
    assert retries.delay_after_break(1, repeatable=False, was_sent=True, random=lambda: 1.0) is None
    assert retries.delay_after_break(1, repeatable=False, was_sent=False, random=lambda: 1.0) == 0.25
    assert retries.delay_after_break(2, repeatable=True, was_sent=True, random=lambda: 1.0) == 0.5
    assert retries.delay_after_break(3, repeatable=True, was_sent=True, random=lambda: 1.0) is None
    assert retries.delay_after_error(1, busy(), repeatable=False, random=lambda: 1.0) is None
    assert retries.delay_after_error(1, busy(retry_after="3"), repeatable=False, random=lambda: 1.0) == 3.0
    assert retries.delay_after_error(1, busy(retry_after="300"), repeatable=True, random=lambda: 1.0) is None
    assert retries.delay_after_error(1, error_of(404, {}), repeatable=True, random=lambda: 1.0) is None


@given(st.integers(1, 50), st.floats(0, 1))
def test_pauses_grow_and_are_bounded(sent: int, drawn: float) -> None:
    assert 0.125 <= Retries().delay(sent, lambda: drawn) <= 8.0


def delta(stream: str, offset: int, text: str) -> Event:
    payload = {"stream": stream, "offset": offset, "delta": text}
    return Event(seq=1, time="", type="tool.output.delta", payload=payload)


def test_output_that_a_second_worker_logs_again_is_passed_on_once() -> None:
    output = OutputFilter()
    seen = [delta("stdout", 0, "a"), delta("stderr", 0, "x"), delta("stdout", 1, "b"), delta("stdout", 0, "a")]
    assert [output.new_text(event) for event in seen] == ["a", "x", "b", ""]


def test_fields_that_this_version_does_not_know_are_ignored() -> None:
    assert Call.model_validate({"tool_call_id": "c", "tool": "t", "state": "queued", "new": 1}).ended is False


def test_an_address_without_a_key_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CODESDK_API_KEY", raising=False)
    monkeypatch.delenv("CODESDK_API_URL", raising=False)
    with pytest.raises(NoConnection, match="codesdk keys create"):
        find_connection("http://127.0.0.1:1", None, None)
    with pytest.raises(NoConnection, match="codesdk up"):
        find_connection(None, None, tmp_path)
    monkeypatch.setenv("CODESDK_API_URL", "http://127.0.0.1:1/")
    monkeypatch.setenv("CODESDK_API_KEY", "k")
    assert find_connection(None, None, None) == ("http://127.0.0.1:1", "k")
