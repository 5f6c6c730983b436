"""Puts, records, deletes and collects artifacts forever, and prints each record: `churner.py DIR URL TENANT ROLE SEED
[HOLD_S]`.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from codesdk.artifacts import ArtifactCollected, ArtifactService, GarbageCollector
from codesdk.artifacts.directory import DirectoryBlobs
from codesdk.artifacts.spool import SpoolDirectory
from codesdk.domain.clock import SystemClock
from codesdk.domain.ids import RandomIds, TenantId
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer
from codesdk.tenancy.quotas import TenantQuotas

CONTENTS = [bytes([65 + n]) * (2000 * (n + 1)) for n in range(4)]
"""Few, so that the same bytes are put, dropped and collected again and again."""


def main(directory: Path, url: str, tenant: TenantId, role: str, *more: str) -> None:
    chance = random.Random(more[0])
    # Without a grace, what is not recorded yet may be collected at once, so every race can be lost.
    hold_s = float(more[1]) if more[1:] else 0.0
    clock = SystemClock()
    database = Database(url)
    writer = Writer(database, directory / "write.lock" if database.is_sqlite else None)
    blobs, incoming = (
        DirectoryBlobs(directory / "artifacts"),
        SpoolDirectory(directory / "artifacts" / "incoming", 10**6),
    )
    artifacts = ArtifactService(
        blobs=blobs,
        incoming=incoming,
        database=database,
        writer=writer,
        clock=clock,
        ids=RandomIds(clock),
        quotas=TenantQuotas({}),
        hold_s=hold_s,
    )
    collector = GarbageCollector(blobs=blobs, incoming=incoming, database=database, writer=writer, clock=clock)
    mine = []
    while True:
        if role == "collector":
            say(f"collected {collector.collect().blobs}")
            continue
        if mine and chance.random() < 0.5:
            artifacts.delete(tenant, mine.pop(chance.randrange(len(mine))))
            continue
        made = artifacts.put(chance.choice(CONTENTS), tenant, None, content_type="a/b", name="n")
        try:
            writer.run(lambda unit, made=made: artifacts.record(unit, made))
        except ArtifactCollected:
            say("refused")
            continue
        mine.append(made.id)
        say(f"recorded {made.id}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], TenantId(sys.argv[3]), *sys.argv[4:])
