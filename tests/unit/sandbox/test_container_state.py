"""The meaning of a container's end, and of an engine's answers while it stops."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from docker.errors import APIError

from codesdk.sandbox.docker.container_state import ended_fault, failed_start_fault
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.port.faults import EngineRefused, EngineRestarted, EngineUnavailable, ImageUnusable, SandboxGone


class Remembering:
    """An engine that was started before its containers, or after them."""

    endpoint = "unix:///engine"

    def __init__(self, *, restarted=False):
        self._restarted = restarted

    def restarted_since(self, _container):
        return self._restarted


def container(**state):
    return {"Id": "c1", "State": {"Status": "exited", "Running": False, "ExitCode": 1, **state}}


def test_one_that_the_engine_does_not_know_was_removed():
    assert "removed" in ended_fault(Remembering(), "box", None).reason


def test_one_that_ended_before_its_engine_started_may_come_back():
    assert isinstance(ended_fault(Remembering(restarted=True), "box", container(ExitCode=137)), EngineRestarted)


def test_one_whose_memory_was_exhausted_says_so_whatever_the_engine_remembers():
    end = ended_fault(Remembering(restarted=True), "box", container(ExitCode=137, OOMKilled=True))
    assert type(end) is SandboxGone
    assert "memory was exhausted" in end.reason


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        (Remembering(), None),
        (Remembering(), container(ExitCode=137)),
        (Remembering(), container(ExitCode=143)),
        (Remembering(restarted=True), container(ExitCode=0)),
    ],
)
def test_an_image_is_not_blamed_for_an_engine_that_ended_its_container(engine, found):
    fault = failed_start_fault(engine, "image", found, "the runner did not answer")
    assert isinstance(fault, EngineUnavailable)
    assert fault.retryable


@pytest.mark.parametrize(
    "found",
    [
        container(ExitCode=1),
        container(ExitCode=137, OOMKilled=True),
        {"Id": "c1", "State": {"Status": "running", "Running": True, "ExitCode": 0}},
    ],
)
def test_an_image_whose_runner_ends_or_is_silent_by_itself_is_unusable(found):
    fault = failed_start_fault(Remembering(), "image", found, "no module named json")
    assert isinstance(fault, ImageUnusable)
    assert "no module named json" in fault.message


@pytest.mark.parametrize(
    ("status", "said", "fault"),
    [
        (500, "get codesdk-1: database not open", EngineUnavailable),
        (500, "rpc error: code = Unavailable desc = transport is closing: unavailable", EngineUnavailable),
        (500, "no space left on device", EngineRefused),
        (409, "database not open", EngineRefused),
    ],
)
def test_an_engine_that_stops_does_not_answer_rather_than_refuse(status, said, fault):
    engine = Engine.__new__(Engine)
    engine.endpoint = "unix:///engine"
    with pytest.raises(fault), engine.doing("inspect a volume"):
        raise APIError("error", response=SimpleNamespace(status_code=status, url="", reason=""), explanation=said)
