"""Many calls, while everything that they need is killed: each has a valid history, no attempt runs twice."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests/ is no package

from chaos import Chaos
from verdict import Record

from databases import BOTH
from own_engine import OWN_ENGINE, running

CLIENTS = 6
SEED = int(os.environ.get("CHAOS_SEED", "20261128"))

pytestmark = OWN_ENGINE


@pytest.fixture(scope="module")
def own(engine, sandbox_image, tmp_path_factory):
    with running(tmp_path_factory.mktemp("own"), sandbox_image, engine) as made:
        yield made
        made.stop()


@pytest.fixture
def database_kind():
    return "postgresql"


@pytest.fixture(scope="module")
def engines(engine, gvisor_engine, own):
    return {"one": engine.host, "two": gvisor_engine.host, "own": own.places.host}


@pytest.fixture
def chaos(engines, own, sandbox_image, tmp_path, database_kind):
    with closing(Chaos(tmp_path, engines, own, sandbox_image, server=database_kind == "postgresql")) as made:
        yield made


def play(chaos: Chaos, calls: int) -> dict:
    """`calls` of all clients together."""
    began, stop = time.monotonic(), threading.Event()
    with ThreadPoolExecutor(1) as faults:
        disturbing = faults.submit(chaos.disturb, random.Random(SEED), stop)
        try:
            with ThreadPoolExecutor(CLIENTS) as clients:
                list(clients.map(lambda client: chaos.make_calls(client, calls // CLIENTS), range(CLIENTS)))
        finally:
            stop.set()
            disturbing.result()
    chaos.settle()
    record = Record(chaos.record.database, chaos.record.clock)
    ran = chaos.ran | record.runs
    kinds = Counter(fault.kind for fault in chaos.faults)
    report = {
        "calls": chaos.made,
        "sessions": chaos.sessions,
        "reopened_from_snapshots": chaos.reopened,
        "orphaned_sessions": chaos.orphans,
        "attempts_begun": len(record.attempts),
        "faults": {kind: kinds[kind] for kind in chaos.kinds},
        "lost_connections": chaos.lost_connections,
        "ended_by_themselves": chaos.ended_by_themselves,
        "outcomes": dict(chaos.outcomes),
        "executions_per_attempt": record.executions_per_attempt(ran),
        "ran_too_often": record.ran_too_often(ran),
        "lawless": record.lawless,
        "told_otherwise": record.told_otherwise(chaos.answers),
        "from_death_to_end": record.from_death_to_end(chaos.faults),
        "where_engines_live": record.where_engines_live(chaos.faults),
        "seconds": round(time.monotonic() - began),
        "swept_at_the_end": chaos.swept,
        "left": chaos.left(),
        "defects": chaos.defects(),
    }
    if place := os.environ.get("CHAOS_JSON"):
        Path(place).with_stem(f"{Path(place).stem}-{chaos.database}").write_text(json.dumps(report, indent=2) + "\n")
    return report


def verify(report: dict) -> None:
    assert report["lawless"] == [], report
    assert report["ran_too_often"] == [], report
    assert report["told_otherwise"] == [], report
    assert report["left"] == dict.fromkeys(report["left"], 0), report
    assert report["swept_at_the_end"] == 0, report
    assert all(report["faults"].values()), report
    # What ran in an engine that died may be lost; most calls must come through.
    assert report["outcomes"]["ok"] > report["calls"] / 2, report
    # Where the engine lives, no other death costs a call, but for a few of a machine that does much else.
    steady = report["where_engines_live"]
    assert steady["calls"] > 0, report
    for all_of_them, well in (("calls", "ended_well"), ("met_a_death", "recovered")):
        assert steady[all_of_them] - steady[well] <= 1 + steady[all_of_them] / 20, report


@pytest.mark.timeout(1200)
def test_sixty_calls_run_at_most_once_for_each_attempt_and_end_lawfully_whatever_dies(chaos):
    verify(play(chaos, 60))


@pytest.mark.soak
@pytest.mark.parametrize("database_kind", BOTH)
@pytest.mark.timeout(4 * 3600)
def test_five_thousand_calls_run_at_most_once_for_each_attempt_and_end_lawfully_whatever_dies(chaos):
    report = play(chaos, int(os.environ.get("CHAOS_CALLS", "5000")))
    verify(report)
    assert report["defects"] == [], "\n".join(report["defects"])
