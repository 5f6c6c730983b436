"""A start that fails costs nothing that lasts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from codesdk.sandbox.runner.spawning import Program


def test_a_fork_that_is_refused_leaves_no_descriptor_open(monkeypatch):
    def refused():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    before = sorted(Path("/proc/self/fd").iterdir())
    for _ in range(20):
        with pytest.raises(BlockingIOError):
            Program(["true"], {}, [0, 1, 2], None).fork(0)
    assert sorted(Path("/proc/self/fd").iterdir()) == before
