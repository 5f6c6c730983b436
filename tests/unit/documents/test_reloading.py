"""Polling files for changes."""

from __future__ import annotations

import logging
import threading

import pytest

from codesdk.documents import FilePoller, reloading


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(reloading, "POLL_S", 0.01)


def test_a_look_that_fails_is_logged_and_does_not_end_the_watch(caplog):
    looks, twice = [], threading.Event()

    def look():
        looks.append(len(looks))
        if len(looks) > 2:
            twice.set()
        raise ValueError("a defect")

    watching = FilePoller("the test's files", look, thread="watch-of-a-test")
    with caplog.at_level(logging.ERROR):
        watching.start()
        assert twice.wait(10.0)
        watching.close()
    assert "checking the test's files for changes failed" in caplog.text
    seen = len(looks)
    assert not any(thread.name == "watch-of-a-test" for thread in threading.enumerate())
    assert len(looks) == seen


def test_one_that_never_began_can_be_closed():
    FilePoller("nothing", lambda: None, thread="watch-of-a-test").close()
