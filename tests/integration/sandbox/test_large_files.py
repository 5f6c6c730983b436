"""Files of any size are transferred in pieces: neither side holds more than a few of them."""

from __future__ import annotations

import hashlib
import tracemalloc
from pathlib import Path

import pytest

from codesdk.sandbox.channel.files import PIECE_BYTES
from codesdk.sandbox.port import FileInfo
from sandboxes import run

pytestmark = pytest.mark.engine
MIB = 1 << 20
SIZE = 150


def runner_peak(sandboxes, sandbox) -> int:
    """Most memory that a process of the runner's had, in bytes."""
    (found,) = sandboxes._engine.api.containers(filters={"label": f"codesdk.owner={sandbox.owner}"})
    pids = [int(line[1]) for line in sandboxes._engine.api.top(found["Id"], ps_args="-eo user,pid")["Processes"]]
    lines = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return max(int(text.split("VmHWM:")[1].split()[0]) for text in lines if "VmHWM:" in text) * 1024


def test_150_megabytes_go_in_and_out_with_a_bounded_memory_on_both_sides(sandboxes, open_sandbox):
    box = open_sandbox(file_bytes=0, memory_bytes=128 * MIB)
    sent, came = hashlib.sha256(), hashlib.sha256()

    def pieces():
        for number in range(SIZE):
            piece = bytes([number]) * MIB
            sent.update(piece)
            yield piece

    tracemalloc.start()
    try:
        info = box.files.upload("large", pieces())
        assert isinstance(info, FileInfo)
        assert info.size == SIZE * MIB
        assert run(box, "sha256sum", "large").stdout[:64].decode() == sent.hexdigest()
        info = box.files.download("large", came.update)
        assert isinstance(info, FileInfo)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert came.digest() == sent.digest()
    assert peak < 24 * PIECE_BYTES
    assert runner_peak(sandboxes, box) < 60 * MIB
