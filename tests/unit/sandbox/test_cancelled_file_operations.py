"""File operations of a cancelled call: queued ones don't begin, and a deletion stops."""

from __future__ import annotations

import json
import os
import threading
import time
from itertools import count

import pytest

from codesdk.sandbox.runner.event_loop import EventLoop
from codesdk.sandbox.runner.protocol.wire import Message
from codesdk.sandbox.runner.workspace import directory_operations
from codesdk.sandbox.runner.workspace.file_service import FileService
from codesdk.sandbox.runner.workspace.root import OperationRefused, Root


def _leave():
    raise SystemExit  # ends the hand's thread


class Served:
    """A shelf, its loop and what it has answered, by call."""

    def __init__(self, place):
        self.loop, self.answers, self._numbers = EventLoop(), {}, count(1)
        settings = {"uid": os.getuid(), "gid": os.getgid(), "workspace": str(place), "limits": {}}
        self.shelf = FileService(self.loop, {**settings, "env": {"HOME": str(place / "home")}}, lambda: None)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def ask(self, operation, call, body=b"", **header):
        message = Message(next(self._numbers), {"op": operation, "call": call, "attempt": 1, **header}, body)
        self.shelf.serve(message, lambda header, _body=b"": self.answers.update({call: header}))

    def hold(self, operation):
        """Let that operation wait until `go_on`."""

        def waits(_header, _body):
            self.begun.set()
            assert self.go_on.wait(20)
            return {"done": True}, b""

        self.shelf.operations[operation] = waits

    def answer(self, call):
        until = time.monotonic() + 20
        while call not in self.answers:
            assert time.monotonic() < until
            self.loop.run_once(time.monotonic() + 1)
        return self.answers[call]

    def close(self):
        self.go_on.set()
        for hand in (self.shelf._short_executor, self.shelf._long_executor):
            if hand is not None:
                hand.submit(_leave)
        for fd in (self.loop._wake_in, self.loop._wake_out, self.shelf.workspace().fd):
            os.close(fd)


@pytest.fixture
def served(tmp_path):
    made = Served(tmp_path)
    yield made
    made.close()


def test_an_operation_that_waits_for_its_turn_does_not_begin_once_its_call_is_cancelled(served, tmp_path):
    served.hold("stat")
    served.ask("stat", "first", path=".")
    assert served.begun.wait(20)
    spec = json.dumps([{"path": "x", "bytes": 1, "expect": None, "mode": None}]).encode()
    served.ask("write", "second", spec + b"x", spec_bytes=len(spec))
    assert served.shelf.cancel_pending(("second", 1))
    assert served.answers["second"]["error"] == "WITHDRAWN", "at once, whatever is before it"
    assert not served.shelf.cancel_pending(("second", 1))
    served.go_on.set()
    served.ask("list", "third", path=".", depth=1, limit=10)
    assert served.answer("third") == {"total": 1, "unscanned": False}
    assert not (tmp_path / "x").exists()


def test_one_that_is_under_way_ends_by_itself(served):
    served.hold("stat")
    served.ask("stat", "first", path=".")
    assert served.begun.wait(20)
    assert not served.shelf.cancel_pending(("first", 1))
    served.go_on.set()
    assert served.answer("first") == {"done": True}
    assert not served.shelf.cancel_pending(("first", 1)), "it is over"


def test_a_deletion_under_way_is_told_to_stop_and_another_calls_is_not(served, monkeypatch):
    def slow(_root, path, _recursive, stopped):
        served.begun.set()
        assert served.go_on.wait(20)
        raise OperationRefused("CANCELLED" if stopped() else "NOT_FOUND", path)

    monkeypatch.setattr(directory_operations, "delete", slow)
    served.ask("delete", "first", path="a", recursive=True)
    assert served.begun.wait(20)
    assert not served.shelf.cancel_pending(("first", 1))
    served.ask("delete", "second", path="a", recursive=True)
    served.go_on.set()
    assert (served.answer("first")["refused"], served.answer("second")["refused"]) == ("CANCELLED", "NOT_FOUND")


def test_a_deletion_that_stops_says_how_much_is_gone(tmp_path):
    for number in range(10):
        (tmp_path / "tree" / f"{number % 2}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / f"{number % 2}" / f"{number}").write_text("x")
    root, asked = Root(str(tmp_path)), count(1)
    try:
        with pytest.raises(OperationRefused, match="it was cancelled; 3 entries were deleted") as refused:
            directory_operations.delete(root, "tree", True, lambda: next(asked) >= 4)
    finally:
        os.close(root.fd)
    assert refused.value.error == "CANCELLED"
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 7
