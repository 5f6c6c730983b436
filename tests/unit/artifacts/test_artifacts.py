from __future__ import annotations

import os
import secrets
import stat

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from codesdk.artifacts import (
    ArtifactDamaged,
    ArtifactInUse,
    ArtifactsUnavailable,
    ArtifactTooLarge,
    ArtifactUnknown,
)
from codesdk.artifacts.digests import CHUNK_BYTES
from codesdk.artifacts.spool import SpoolDirectory
from codesdk.domain.canonical import bytes_hash
from codesdk.domain.quotas import QuotaExceeded, Resource, UnlimitedQuotas
from codesdk.sessions import NewSession


def keep(stage, content=b"content", tenant=None, session=None, artifacts=None):
    artifacts = artifacts or stage.artifacts
    made = artifacts.put(content, tenant or stage.principal.tenant_id, session, content_type="text/plain", name="a.txt")
    stage.writer.run(lambda unit: artifacts.record(unit, made))
    return made


def files(stage):
    return [path for path in (stage.root / "artifacts").rglob("*") if path.is_file()]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=5000))
def test_bytes_come_back_as_they_went_in(stage, content):
    made = keep(stage, content)
    found = stage.artifacts.find(stage.principal.tenant_id, made.id)
    assert found == made
    assert (found.size, found.content_hash) == (len(content), bytes_hash(content))
    assert stage.artifacts.read(found) == content


@pytest.mark.parametrize(
    ("start", "length"),
    [
        (0, 1),
        (CHUNK_BYTES - 1, 2),
        (CHUNK_BYTES, CHUNK_BYTES),
        (3 * CHUNK_BYTES - 5, 1),
        (2 * CHUNK_BYTES + 7, None),
        (0, 10**12),
        (10**12, 5),
    ],
)
def test_a_range_is_that_range_across_chunks(stage, start, length):
    content = secrets.token_bytes(3 * CHUNK_BYTES - 4)
    found = stage.artifacts.find(stage.principal.tenant_id, keep(stage, content).id)
    got = b"".join(stage.artifacts.stream(found, start, length))
    assert got == content[start : None if length is None else start + length]


def test_equal_bytes_are_stored_once(stage):
    keep(stage)
    keep(stage)
    assert len(files(stage)) == 1


def test_another_tenants_artifact_does_not_exist(stage):
    made = keep(stage)
    stranger, _ = stage.enroll("other", "eve")
    for look in (stage.artifacts.find, stage.artifacts.delete):
        with pytest.raises(ArtifactUnknown) as unknown:
            look(stranger.tenant_id, made.id)
        assert unknown.value.status == 404
    assert stage.artifacts.listing(stranger.tenant_id) == []
    with pytest.raises(ArtifactUnknown):
        stage.artifacts.listing(stranger.tenant_id, after=made.id)


def test_bytes_without_a_committed_record_are_nobodys(stage):
    made = stage.artifacts.put(b"x", stage.principal.tenant_id, None, content_type="a/b", name="n")
    with pytest.raises(ArtifactUnknown):
        stage.artifacts.find(stage.principal.tenant_id, made.id)


def test_the_list_is_newest_first_and_goes_on_after_an_id(stage):
    made = []
    for number in range(5):
        made.insert(0, keep(stage, b"%d" % number).id)
        if number % 2:
            stage.clock.advance(1)
    tenant = stage.principal.tenant_id
    assert [one.id for one in stage.artifacts.listing(tenant)] == made
    pages = [stage.artifacts.listing(tenant, after=after, limit=2) for after in (None, made[1], made[3])]
    assert [[one.id for one in page] for page in pages] == [made[:2], made[2:4], made[4:]]


def test_the_list_may_be_of_one_session(stage):
    keep(stage)
    mine = keep(stage, session=stage.session.id)
    assert [one.id for one in stage.artifacts.listing(stage.principal.tenant_id, stage.session.id)] == [mine.id]


@pytest.mark.parametrize("damage", ["change", "cut", "remove"])
def test_damaged_bytes_are_noticed_and_putting_them_again_mends_them(stage, damage):
    made = keep(stage)
    (path,) = files(stage)
    {"change": lambda: path.write_bytes(b"CONTENT"), "cut": lambda: path.write_bytes(b""), "remove": path.unlink}[
        damage
    ]()
    with pytest.raises(ArtifactDamaged) as damaged:
        stage.artifacts.read(made)
    assert "Put the same bytes again" in damaged.value.advice()
    keep(stage)
    assert stage.artifacts.read(made) == b"content"


def test_no_byte_of_a_damaged_chunk_is_given_out_and_every_byte_before_it_is(stage):
    content = secrets.token_bytes(3 * CHUNK_BYTES)
    made = keep(stage, content)
    (path,) = files(stage)
    with path.open("r+b") as file:
        file.seek(2 * CHUNK_BYTES + 17)
        file.write(bytes([content[2 * CHUNK_BYTES + 17] ^ 1]))
    pieces = stage.artifacts.stream(made)
    assert next(pieces) + next(pieces) == content[: 2 * CHUNK_BYTES]
    with pytest.raises(ArtifactDamaged):
        next(pieces)
    assert b"".join(stage.artifacts.stream(made, 10, 5)) == content[10:15], "a range elsewhere is whole"


def test_what_an_older_version_kept_is_read_and_verified(stage):
    made = keep(stage, secrets.token_bytes(CHUNK_BYTES + 5))
    stage.writer.run(lambda unit: unit.connection.execute(text("UPDATE blobs SET digests = NULL")))
    assert bytes_hash(stage.artifacts.read(made)) == made.content_hash
    (path,) = files(stage)
    os.truncate(path, CHUNK_BYTES)
    with pytest.raises(ArtifactDamaged):
        stage.artifacts.read(made)


def test_files_are_private_to_the_user_by_their_directory(stage):
    keep(stage)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (stage.root / "artifacts").iterdir()} == {0o700}


def test_a_directory_that_cannot_be_written_says_so_and_leaves_nothing(stage):
    (stage.root / "artifacts").write_bytes(b"")  # root may write everywhere, but not beneath a file
    with pytest.raises(ArtifactsUnavailable) as unavailable:
        keep(stage)
    assert unavailable.value.retryable
    assert (stage.root / "artifacts").read_bytes() == b""


def test_more_bytes_than_the_limit_are_refused_and_leave_nothing(tmp_path):
    with SpoolDirectory(tmp_path / "in", 10).spool() as spool:
        spool.write(b"0123456789")
        with pytest.raises(ArtifactTooLarge):
            spool.write(b"x")
    assert list((tmp_path / "in").iterdir()) == []


def test_what_a_killed_process_was_receiving_is_swept_and_what_lives_is_not(tmp_path):
    incoming = SpoolDirectory(tmp_path / "in", 10)
    with incoming.spool() as spool:
        (tmp_path / "in" / "0123456789abcdef.part").write_bytes(b"left")
        assert incoming.sweep() == 1
        assert spool.path.exists()
    assert incoming.sweep() == 0


class Ledger(UnlimitedQuotas):
    """Bytes of one tenant, up to a limit."""

    def __init__(self, limit):
        self.used, self.limit = 0, limit

    def reserve(self, unit, tenant, resource, amount=1):  # noqa: ARG002
        assert resource is Resource.ARTIFACT_BYTES
        if self.used + amount > self.limit:
            raise QuotaExceeded(resource, used=self.used, limit=self.limit, asked=amount, advice="Delete some.")
        self.used += amount

    def release(self, unit, tenant, resource, amount):  # noqa: ARG002
        self.used -= amount


def test_bytes_count_against_the_quota_and_come_back_with_the_record(stage):
    ledger = Ledger(10)
    artifacts = stage.artifacts_with(ledger)
    made = keep(stage, b"x" * 10, artifacts=artifacts)
    with pytest.raises(QuotaExceeded):
        keep(stage, b"y", artifacts=artifacts)
    artifacts.delete(made.tenant_id, made.id)
    assert ledger.used == 0
    with pytest.raises(ArtifactUnknown):
        artifacts.delete(made.tenant_id, made.id)
    assert ledger.used == 0


def test_what_an_open_session_starts_from_stays(stage):
    made = keep(stage)
    session, _ = stage.sessions.open(stage.principal, NewSession(seed_artifact=made.id))
    with pytest.raises(ArtifactInUse):
        stage.artifacts.delete(made.tenant_id, made.id)
    stage.sessions.close(stage.principal.tenant_id, session.id)
    assert stage.artifacts.delete(made.tenant_id, made.id) == made
