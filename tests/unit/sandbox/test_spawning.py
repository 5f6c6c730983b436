"""A failed start leaks nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from codesdk.sandbox.runner.execution.spawn import Program

TRIES = 20


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_fork_that_is_refused_leaves_no_descriptor_open(monkeypatch):
    def refused():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    before = descriptors()
    for _ in range(TRIES):
        with pytest.raises(BlockingIOError):
            Program(["true"], {}, [0, 1, 2], None).fork(0)
    # Other tests' threads may still open or close one or two meanwhile; what is leaked would be one of each try at least.
    assert descriptors() < before + TRIES // 2
