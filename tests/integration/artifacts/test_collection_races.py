"""Collection races writers in other processes that are killed: no record ever refers to removed bytes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

from codesdk.artifacts import GarbageCollector
from stage import wait_for

CHURNER = Path(__file__).with_name("churner.py")
LIVES = 4


class Churner:
    """One process; `said` counts its lines by their first word."""

    def __init__(self, stage, role, seed):
        self.said = {"recorded": 0, "refused": 0, "collected": 0}
        self.removed = 0
        line = [sys.executable, str(CHURNER), str(stage.root), stage.url, stage.principal.tenant_id, role, str(seed)]
        self._process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self):
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word in self.said:
                self.said[word] += 1
            if word == "collected" and rest.isdigit():
                self.removed += int(rest)

    def kill(self):
        assert self._process.poll() is None, "it must not have ended by itself"
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)
        self._reading.join(10)
        self._process.stdout.close()


def recorded(stage):
    return stage.artifacts.listing(stage.principal.tenant_id, limit=100_000)


def check(stage):
    """Every record's bytes are there and right."""
    found = recorded(stage)
    for artifact in found:
        assert len(stage.artifacts.read(artifact)) == artifact.size
    return found


def worked(one, other, collector):
    return min(one.said["recorded"], other.said["recorded"]) >= 15 and collector.removed >= 4


def test_writers_and_collectors_that_are_killed_at_random_leave_every_record_its_bytes(stage):
    chance = random.Random(7)
    done, removed = {"recorded": 0, "refused": 0, "collected": 0}, 0
    for life in range(LIVES):
        roles = ("writer", "writer", "collector")
        churners = [Churner(stage, role, 100 * life + place) for place, role in enumerate(roles)]
        wait_for(lambda churners=churners: worked(*churners), "each to work", 60)
        threading.Event().wait(chance.random() * 0.4)
        for churner in chance.sample(churners, len(churners)):
            churner.kill()
        for churner in churners:
            removed += churner.removed
            done = {word: count + churner.said[word] for word, count in done.items()}
        for artifact in check(stage):  # those of a killed process, which would keep all bytes for ever
            at_once(stage).delete(artifact.tenant_id, artifact.id)
    assert done["recorded"] >= 30 * LIVES
    assert removed >= 4 * LIVES, "bytes were collected while others wrote"
    assert done["refused"] > 0, f"the race was lost, and the loser was told: {done}"
    collect_the_rest(stage)


def at_once(stage):
    """Artifacts whose bytes nobody is given time to finish reading, as in the other processes."""
    return stage.artifacts_with(stage.quotas, hold_s=0.0)


def collect_the_rest(stage):
    collector = GarbageCollector(
        blobs=stage.blobs,
        incoming=stage.incoming,
        database=stage.database,
        writer=stage.writer,
        clock=stage.clock,
    )
    stage.clock.advance(10**9)  # what was killed between two steps may have left a file without a row
    collector.collect(delete_unknown=True)
    names = {artifact.blob_key for artifact in check(stage)}
    assert {found.key for found in stage.blobs.keys()} == names  # noqa: SIM118 (no mapping)
    assert list((stage.root / "artifacts" / "incoming").iterdir()) == []
    for artifact in recorded(stage):
        at_once(stage).delete(artifact.tenant_id, artifact.id)
    collector.collect()
    assert list(stage.blobs.keys()) == []
