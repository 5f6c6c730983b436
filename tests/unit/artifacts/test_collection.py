from __future__ import annotations

import pytest
from sqlalchemy import text

from codesdk.artifacts import ArtifactCollected, ArtifactsUnavailable, CollectionReport, GarbageCollector
from codesdk.artifacts.memory import MemoryBlobs


class Frail(MemoryBlobs):
    """A store that can be away."""

    away = False

    def delete(self, key):
        if self.away:
            raise ArtifactsUnavailable("away")
        super().delete(key)


@pytest.fixture
def blobs(stage):
    return Frail(stage.clock)


@pytest.fixture
def keeping(stage, blobs):
    """Artifacts that hold nothing for anybody: what has no record may go at once."""
    return stage.artifacts_with(stage.artifacts._quotas, blobs, hold_s=-1.0)


@pytest.fixture
def collector(stage, blobs):
    return GarbageCollector(
        blobs=blobs, incoming=stage.incoming, database=stage.database, writer=stage.writer, clock=stage.clock
    )


def put(stage, artifacts, content=b"content", *, record=True):
    made = artifacts.put(content, stage.principal.tenant_id, None, content_type="a/b", name="n")
    if record:
        stage.writer.run(lambda unit: artifacts.record(unit, made))
    return made


def rows(stage):
    with stage.database.read() as connection:
        return connection.execute(text("SELECT key, state FROM blobs")).all()


def test_what_a_record_names_stays(stage, keeping, collector):
    made = put(stage, keeping)
    assert collector.collect() == CollectionReport()
    assert keeping.read(made) == b"content"


def test_bytes_go_with_the_last_record_that_names_them(stage, keeping, collector, blobs):
    one, two = put(stage, keeping), put(stage, keeping)
    keeping.delete(one.tenant_id, one.id)
    assert collector.collect() == CollectionReport()
    assert keeping.read(two) == b"content"
    keeping.delete(two.tenant_id, two.id)
    assert collector.collect() == CollectionReport(blobs=1)
    assert (blobs.content, rows(stage)) == ({}, [])


def test_what_is_held_stays_until_its_time_is_over(stage, blobs, collector):
    holding = stage.artifacts_with(stage.artifacts._quotas, blobs, hold_s=3600.0)
    put(stage, holding, record=False)
    assert collector.collect() == CollectionReport()
    assert len(blobs.content) == 1


def test_bytes_that_never_got_a_record_go(stage, keeping, collector, blobs):
    put(stage, keeping, record=False)
    assert collector.collect() == CollectionReport(blobs=1)
    assert blobs.content == {}


def test_a_record_that_comes_after_the_collection_is_refused_as_retryable(stage, keeping, collector):
    made = put(stage, keeping, record=False)
    collector.collect()
    with pytest.raises(ArtifactCollected) as collected:
        stage.writer.run(lambda unit: keeping.record(unit, made))
    assert collected.value.retryable
    again = put(stage, keeping)
    assert keeping.read(again) == b"content"


def test_bytes_put_while_their_twin_is_doomed_get_a_key_of_their_own(stage, keeping, collector, blobs):
    gone = put(stage, keeping)
    keeping.delete(gone.tenant_id, gone.id)
    blobs.away = True
    with pytest.raises(ArtifactsUnavailable):
        collector.collect()
    assert [row.state for row in rows(stage)] == ["doomed"]
    again = put(stage, keeping)
    assert again.blob_key != gone.blob_key
    blobs.away = False
    assert collector.collect() == CollectionReport(blobs=1), "what was doomed is taken up"
    assert keeping.read(again) == b"content"


def test_a_put_during_the_deletion_of_its_twin_loses_nothing(stage, keeping, collector, blobs):
    gone = put(stage, keeping)
    keeping.delete(gone.tenant_id, gone.id)
    made = []
    delete = blobs.delete

    def meanwhile(key):
        made.append(put(stage, keeping))
        delete(key)
        made.append(put(stage, keeping))

    blobs.delete = meanwhile
    assert collector.collect().blobs == 1
    assert [keeping.read(one) for one in made] == [b"content"] * 2


def test_bytes_that_the_database_does_not_know_go_only_where_asked_and_only_when_old(stage, keeping, collector, blobs):
    made = put(stage, keeping)
    blobs.content["ab-stray"] = (b"stray", stage.clock.now().timestamp())
    assert collector.collect() == CollectionReport()
    assert collector.collect(delete_unknown=True) == CollectionReport()
    stage.clock.advance(48 * 3600)
    assert collector.collect() == CollectionReport()
    assert collector.collect(delete_unknown=True) == CollectionReport(strays=1)
    assert list(blobs.content) == [made.blob_key]
