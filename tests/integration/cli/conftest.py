"""Runs `codesdk` as a program."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from integration.cli.running import CODESDK, DEMO_POLICIES, Ended, Up, end


@pytest.fixture
def codesdk(tmp_path, engine):
    """Runs one command to its end."""

    def run(*words: str, deadline_s: float = 90.0, **environ: str) -> Ended:
        env = {**os.environ, "CODESDK_DATA_DIR": str(tmp_path / "data"), "CODESDK_DOCKER_HOST": engine.host, **environ}
        done = subprocess.run(
            [*CODESDK, *words], env=env, capture_output=True, text=True, timeout=deadline_s, check=False
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def start_up(tmp_path, engine, sandbox_image) -> Iterator[Any]:
    """Starts `codesdk up --json` on a data directory of the test's own."""
    with ExitStack() as running:

        def start(*words: str, policies: Path = DEMO_POLICIES, **environ: str) -> Up:
            data_dir = tmp_path / "data"
            env = {**os.environ, "CODESDK_DOCKER_HOST": engine.host, **environ}
            line = [*CODESDK, "up", "--json", "--port", "0", "--data-dir", str(data_dir), "--policies", str(policies)]
            stderr = tmp_path / f"stderr-{time.monotonic_ns()}"
            with stderr.open("w") as said:
                process = subprocess.Popen([*line, *words], env=env, stdout=subprocess.PIPE, stderr=said, text=True)
            running.callback(end, process)
            return Up(process, data_dir, stderr)

        yield start
