from __future__ import annotations

import stat

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codesdk.artifacts import ArtifactDamaged, ArtifactsUnavailable, ArtifactUnknown
from codesdk.domain.canonical import bytes_hash


def keep(stage, content=b"content", tenant=None):
    made = stage.artifacts.keep(
        content, tenant or stage.principal.tenant_id, None, content_type="text/plain", name="a.txt"
    )
    stage.writer.run(lambda unit: stage.artifacts.record(unit, made))
    return made


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=5000))
def test_bytes_come_back_as_they_went_in(stage, content):
    made = keep(stage, content)
    found = stage.artifacts.find(stage.principal.tenant_id, made.id)
    assert found == made
    assert (found.size, found.content_hash) == (len(content), bytes_hash(content))
    assert stage.artifacts.read(found) == content


def test_equal_bytes_are_stored_once(stage):
    keep(stage)
    keep(stage)
    assert len([path for path in (stage.root / "artifacts").rglob("*") if path.is_file()]) == 1


def test_another_tenants_artifact_does_not_exist(stage):
    made = keep(stage)
    stranger, _ = stage.enroll("other", "eve")
    with pytest.raises(ArtifactUnknown) as unknown:
        stage.artifacts.find(stranger.tenant_id, made.id)
    assert unknown.value.status == 404


def test_bytes_without_a_committed_record_are_nobodys(stage):
    made = stage.artifacts.keep(b"x", stage.principal.tenant_id, None, content_type="a/b", name="n")
    with pytest.raises(ArtifactUnknown):
        stage.artifacts.find(stage.principal.tenant_id, made.id)


@pytest.mark.parametrize("damage", ["change", "cut", "remove"])
def test_damaged_bytes_are_noticed(stage, damage):
    made = keep(stage)
    path = next(path for path in (stage.root / "artifacts").rglob("*") if path.is_file())
    {"change": lambda: path.write_bytes(b"CONTENT"), "cut": lambda: path.write_bytes(b""), "remove": path.unlink}[
        damage
    ]()
    with pytest.raises(ArtifactDamaged):
        stage.artifacts.read(made)


def test_files_are_private_to_the_user_by_their_directory(stage):
    keep(stage)
    folder = next(path for path in (stage.root / "artifacts").iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_directory_that_cannot_be_written_says_so_and_leaves_nothing(stage):
    (stage.root / "artifacts").write_bytes(b"")  # root may write everywhere, but not beneath a file
    with pytest.raises(ArtifactsUnavailable) as unavailable:
        keep(stage)
    assert unavailable.value.retryable
    assert (stage.root / "artifacts").read_bytes() == b""
