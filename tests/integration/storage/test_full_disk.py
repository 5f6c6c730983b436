"""A disk that is really full, on machines that allow mounting one."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from codesdk.artifacts import ArtifactsUnavailable
from codesdk.artifacts.directory import DirectoryBlobs
from codesdk.artifacts.spool import SpoolDirectory
from codesdk.storage.database import Database, StorageUnavailable
from codesdk.storage.writer import Writer
from small_disk import small_disk


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", "1m") as place:
        yield place


def test_a_full_disk_refuses_and_everything_acknowledged_is_there(disk):
    database = Database(f"sqlite:///{disk / 'a.db'}")
    writer = Writer(database, disk / "write.lock")
    writer.run(lambda unit: unit.connection.execute(text("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")))
    acknowledged = []

    def fill():
        for number in range(1000):
            row = {"a": number, "b": "x" * 5000}
            writer.run(lambda unit, row=row: unit.connection.execute(text("INSERT INTO t VALUES(:a, :b)"), row))
            acknowledged.append(number)

    with pytest.raises(StorageUnavailable):
        fill()
    assert acknowledged
    writer.close()
    database.close()
    again = Database(f"sqlite:///{disk / 'a.db'}")
    with again.read() as connection:
        assert [row.a for row in connection.execute(text("SELECT a FROM t"))] == acknowledged
    again.close()


def test_an_artifact_that_does_not_fit_leaves_nothing(disk):
    incoming = SpoolDirectory(disk / "artifacts" / "incoming", 10_000_000)

    def put():
        with incoming.spool() as spool:
            spool.write(b"x" * 2_000_000)
            DirectoryBlobs(disk / "artifacts").put("00", spool)

    with pytest.raises(ArtifactsUnavailable):
        put()
    assert [path for path in (disk / "artifacts").rglob("*") if path.is_file()] == []
