"""Sessions are created, used and destroyed while the worker is killed at random points: nothing is left."""

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

from installation import Installation

AT_ONCE = 6
SEED = 20261128

pytestmark = pytest.mark.engine


@pytest.fixture
def installation(redis_url, engine, sandbox_image, tmp_path):
    made = Installation(tmp_path, redis_url, engine.host)
    yield made
    made.close()


def soak(installation: Installation, sessions: int) -> dict:
    began = time.monotonic()
    stop = threading.Event()
    installation.wait_ready()
    killer = threading.Thread(target=installation.keep_killing, args=(random.Random(SEED), stop), daemon=True)
    killer.start()
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(installation.live_one_session, [random.Random(SEED + number) for number in range(sessions)]))
    finally:
        stop.set()
        killer.join(30)
    installation.settle()
    report = {
        "sessions": sessions,
        "kills": installation.kills,
        "kills_while_starting": installation.kills_while_starting,
        "ended_by_themselves": installation.ended_by_themselves,
        "containers_made": installation.containers_made,
        "outcomes": dict(installation.outcomes),
        "swept_at_the_end": len(installation.swept.containers),
        "seconds": round(time.monotonic() - began),
        "left": installation.left(),
    }
    if place := os.environ.get("SOAK_JSON"):
        Path(place).write_text(json.dumps(report, indent=2) + "\n")
    return report


def check(report: dict) -> None:
    assert report["left"] == dict.fromkeys(report["left"], 0), report
    assert report["outcomes"]["sessions"] == report["sessions"]
    assert report["kills"] > 0
    # A killed worker costs calls their sandbox now and then; most must come through, or the soak shows nothing.
    assert report["outcomes"]["ok"] > report["sessions"] / 2, report


@pytest.mark.timeout(1200)
def test_fifty_sessions_with_a_worker_that_is_killed_leave_nothing(installation):
    check(soak(installation, 50))


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
def test_a_thousand_sessions_with_a_worker_that_is_killed_leave_nothing(installation):
    check(soak(installation, int(os.environ.get("SOAK_SESSIONS", "1000"))))
