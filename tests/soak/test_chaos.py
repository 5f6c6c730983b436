"""Many calls, while workers are killed and told to end and Redis is restarted: each has one lawful history, none runs twice."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests/ is no package

from chaos import Chaos

CLIENTS = 6
SEED = 20261128

pytestmark = pytest.mark.engine


@pytest.fixture
def chaos(redis_url, engine, sandbox_image, tmp_path):
    made = Chaos(tmp_path, engine.host)
    yield made
    made.close()


def play(chaos: Chaos, calls: int) -> dict:
    """`calls` of all clients together."""
    began, stop = time.monotonic(), threading.Event()
    chaos.wait_ready()
    with ThreadPoolExecutor(1) as faults:
        disturbing = faults.submit(chaos.disturb, random.Random(SEED), stop)
        try:
            with ThreadPoolExecutor(CLIENTS) as clients:
                list(clients.map(lambda client: chaos.make_calls(client, calls // CLIENTS), range(CLIENTS)))
        finally:
            stop.set()
        disturbing.result()
    chaos.wait_ready()
    chaos.settle()
    report = {
        "calls": calls // CLIENTS * CLIENTS,
        "kills": chaos.kills,
        "told_to_end": chaos.told,
        "redis_restarts": chaos.redis_restarts,
        "outcomes": dict(chaos.outcomes),
        "ran_more_than_once": {mark: times for mark, times in chaos.ran.items() if times > 1},
        "seconds": round(time.monotonic() - began),
        "left": chaos.left(),
    }
    if place := os.environ.get("CHAOS_JSON"):
        Path(place).write_text(json.dumps(report, indent=2) + "\n")
    return report


def verify(report: dict) -> None:
    assert report["ran_more_than_once"] == {}, report
    assert report["left"] == dict.fromkeys(report["left"], 0), report
    assert report["kills"] > 0, report
    # A worker that dies while it opens a sandbox costs its session's calls; most must come through.
    assert report["outcomes"]["ok"] > report["calls"] / 2, report


@pytest.mark.timeout(600)
def test_sixty_calls_run_at_most_once_and_end_lawfully_whatever_dies(chaos):
    verify(play(chaos, 60))


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_five_thousand_calls_run_at_most_once_and_end_lawfully_whatever_dies(chaos):
    verify(play(chaos, int(os.environ.get("CHAOS_CALLS", "5000"))))
