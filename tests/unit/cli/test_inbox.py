"""Waiting for keys and new approvals at once."""

from __future__ import annotations

import os

from codesdk.cli.approval.inbox import _keys


def test_keys_that_were_typed_ahead_news_and_the_end_of_input_are_each_heard_at_once(monkeypatch):
    keyboard, typing = os.pipe()
    bell, ring = os.pipe()
    try:
        with os.fdopen(keyboard) as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            with _keys(bell) as key:
                os.write(ring, b"...")
                assert key(30.0) == ""
                os.write(typing, b"aR")
                assert [key(30.0), key(30.0)] == ["a", "R"]
                os.write(typing, b"s")
                os.write(ring, b".")
                assert key(30.0) == "s"
                assert key(0.0) == ""
                os.close(typing)
                assert key(30.0) == "q"
    finally:
        for end in (bell, ring):
            os.close(end)
