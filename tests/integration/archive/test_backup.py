"""A backup is complete or does not exist, and a restored copy acts only for itself."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from codesdk.api.cursor import encode_cursor, start_position
from codesdk.archive import backup
from codesdk.archive.backup import BackupRefused, create_backup
from codesdk.archive.manifest import BackupInvalid
from codesdk.archive.restore import RestoreRefused, restore
from codesdk.artifacts import ArtifactDamaged
from codesdk.artifacts.service import UNRECORDED_TTL_S
from codesdk.bootstrap.maintenance import open_maintenance_services
from codesdk.domain.calls import CallState
from codesdk.domain.clock import SystemClock
from codesdk.domain.ids import ToolCallId
from codesdk.domain.invariants import first_violation
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import EventLog
from codesdk.settings import Settings
from codesdk.toolcalls.records import store as call_store
from databases import ONLY_POSTGRESQL
from stage import stored_call, wait_for

HERE = Path(__file__).parent
CHURNER = HERE.parent / "artifacts" / "churner.py"
APPENDER = HERE.parent / "eventlog" / "appender.py"


@pytest.fixture
def settings(stage):
    return Settings(data_dir=stage.root)


@pytest.fixture
def backed(settings, tmp_path):
    """Makes a backup; its directory."""

    def make(name="backup"):
        with open_maintenance_services(settings) as record:
            create_backup(record, tmp_path / "out" / name)
        return tmp_path / "out" / name

    (tmp_path / "out").mkdir()
    return make


def keep(stage, content):
    made = stage.artifacts.put(content, stage.principal.tenant_id, stage.session.id, content_type="a/b", name="n")
    stage.writer.run(lambda unit: stage.artifacts.record(unit, made))
    return made


def copy_at(path):
    return Settings(data_dir=path)


def everything(record, session):
    log, events = EventLog(record.database, SystemClock(), LocalHints()), []
    while page := log.read(session, events[-1].seq if events else 0):
        events += page
    return events


def test_a_backup_under_load_is_consistent_and_has_the_bytes_of_every_record(stage, backed, tmp_path):
    line = [sys.executable, str(CHURNER), str(stage.root), stage.url, stage.principal.tenant_id]
    load = [
        [*line, role, str(seed), str(UNRECORDED_TTL_S)] for seed, role in enumerate(("writer", "writer", "collector"))
    ]
    lock = str(stage.root / "write.lock")
    load.append([sys.executable, str(APPENDER), stage.url, lock, stage.session.id, "a"])
    processes = [subprocess.Popen(each, stdout=subprocess.DEVNULL) for each in load]
    tenant, session = stage.principal.tenant_id, stage.session.id
    stage.tampered = True  # the appender's events mean nothing
    try:
        for number in range(3):
            before = stage.log.head(session)
            wait_for(lambda before=before: stage.log.head(session) > before + 20, "the load", 60)
            wait_for(lambda: stage.artifacts.listing(tenant), "an artifact", 60)
            place = backed(f"backup-{number}")
            restored = restore(place, copy_at(tmp_path / f"copy-{number}"))
            assert restored.damaged == ()
            with open_maintenance_services(copy_at(tmp_path / f"copy-{number}")) as record:
                for artifact in record.artifacts.listing(tenant, limit=100_000):
                    assert len(record.artifacts.read(artifact)) == artifact.size
                numbers = [event.seq for event in everything(record, session)]
                assert numbers == list(range(1, len(numbers) + 1))
                assert len(numbers) > before
            assert all(process.poll() is None for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_restored_copy_has_its_own_instance_and_epochs_and_runs_nothing(stage, settings, backed, tmp_path):
    stage.pipeline.submit("workspace.exec", {"command": "running"}, stage.subject)
    claimed = stage.claims().take()
    stage.pipeline.submit("workspace.exec", {"command": "queued"}, stage.subject)
    stage.pipeline.submit("workspace.write", {"path": "a", "content": "waits"}, stage.subject)
    artifact = keep(stage, b"content")
    epoch, head = stage.log.position(stage.session.id)
    restored = restore(backed(), copy_at(tmp_path / "copy"))
    assert (restored.lost_calls, restored.closed_sessions) == (1, 1)
    assert restored.instance != restored.backup_of == settings.instance_id()
    with open_maintenance_services(copy_at(tmp_path / "copy")) as record:
        events = everything(record, stage.session.id)
        assert first_violation(events) is None
        assert [event.type for event in events][-1] == "sandbox.session_closed"
        ends = [event.payload for event in events if event.type in {"tool.call.completed", "tool.call.denied"}]
        assert [end.get("code") for end in ends] == ["WORKER_LOST", "SESSION_CLOSED", "SESSION_CLOSED"]
        new, _ = EventLog(record.database, SystemClock(), LocalHints()).position(stage.session.id)
        assert start_position(encode_cursor(epoch, head), new, len(events)).resync is not None
        with record.database.read() as connection:
            assert not any(call_store.list_in_state(connection, state) for state in CallState if not state.terminal)
            states = connection.exec_driver_sql("SELECT DISTINCT state FROM sandboxes").scalars().all()
        assert states == ["gone"]
        assert record.artifacts.read(record.artifacts.find(artifact.tenant_id, artifact.id)) == b"content"
    call = stored_call(stage.database, ToolCallId(claimed.stored.identity.tool_call_id))
    assert call.state is CallState.RUNNING, "the original goes on"


def test_a_backup_that_is_killed_leaves_nothing_under_its_name(stage, tmp_path):
    keep(stage, b"x" * 3_000_000)
    program = (
        "import os, sys; from pathlib import Path; from codesdk.archive import backup, manifest\n"
        "from codesdk.bootstrap.maintenance import open_maintenance_services; from codesdk.settings import Settings\n"
        "manifest.write = lambda *_: os.kill(os.getpid(), 9)\n"
        "with open_maintenance_services(Settings(data_dir=Path(sys.argv[1]))) as record: backup.create_backup(record, Path(sys.argv[2]))\n"
    )
    target = tmp_path / "killed"
    done = subprocess.run([sys.executable, "-c", program, str(stage.root), str(target)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not target.exists()
    (left,) = tmp_path.glob(".killed.partial-*")
    with pytest.raises(BackupInvalid):
        restore(left, copy_at(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def test_a_backup_never_replaces_anything_and_one_that_fails_leaves_nothing(stage, settings, backed, monkeypatch):
    keep(stage, b"content")
    place = backed()
    with open_maintenance_services(settings) as record, pytest.raises(BackupRefused, match="exists"):
        create_backup(record, place)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup.shutil, "copyfile", full)
    (stage.root / "operator.key").write_text("key")
    with pytest.raises(BackupRefused, match="No space"):
        backed("second")
    assert [path.name for path in place.parent.iterdir()] == ["backup"]


@pytest.mark.parametrize(
    "damage", ["database", "artifact", "missing", "manifest", "newer", "outside", "there and back"]
)
def test_a_backup_that_is_not_whole_restores_nothing(stage, backed, tmp_path, damage):
    keep(stage, b"content")
    place = backed()
    stored = next(path for path in (place / "artifacts").rglob("*") if path.is_file())
    said = json.loads((place / "manifest.json").read_text())
    match damage:
        case "database":
            with (place / "codesdk.db").open("r+b") as file:
                file.seek(100)
                file.write(b"\xff")
        case "artifact":
            stored.write_bytes(b"CONTENT")
        case "missing":
            stored.unlink()
        case "manifest":
            (place / "manifest.json").write_text(json.dumps(said)[:-40])
        case "newer":
            (place / "manifest.json").write_text(json.dumps({**said, "format": 2}))
        case "outside":
            said["files"][0]["path"] = "../../etc/passwd"
            (place / "manifest.json").write_text(json.dumps(said))
        case "there and back":
            (place / "artifacts" / "x").write_bytes(b"")
            path = f"artifacts/../../{place.name}/artifacts/x"
            said["files"].append({"path": path, "size": 0, "sha256": hashlib.sha256(b"").hexdigest()})
            (place / "manifest.json").write_text(json.dumps(said))
    with pytest.raises(BackupInvalid):
        restore(place, copy_at(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()
    assert not list(tmp_path.glob(".copy*"))


@pytest.mark.parametrize("what", ["backup", "copy"])
def test_all_of_it_is_on_the_disk_before_its_name_is(stage, backed, tmp_path, monkeypatch, what):
    keep(stage, b"content")
    place = backed() if what == "copy" else None
    synced, renamed = [], []
    sync, rename = os.fsync, Path.rename

    def syncs(handle):
        sync(handle)
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())

    def renames(path, target):
        if ".partial-" in path.name:
            inside = {path, *path.rglob("*")}
            renamed.append((inside - set(synced), target.parent))
            synced.clear()
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(Path, "rename", renames)
    restore(place, copy_at(tmp_path / "copy")) if place else backed()
    ((unsynced, parent),) = renamed
    assert unsynced == set()
    assert parent in synced


def test_a_directory_that_is_used_is_not_restored_into(stage, settings, backed, tmp_path):
    place = backed()
    with pytest.raises(RestoreRefused, match="not empty"):
        restore(place, settings)
    (tmp_path / "empty").mkdir()
    assert restore(place, copy_at(tmp_path / "empty")).data_dir == str(tmp_path / "empty")


def test_an_artifact_that_was_damaged_before_does_not_stop_the_backup_and_is_named(stage, settings, tmp_path):
    keep(stage, b"good")
    bad = keep(stage, b"bad")
    next((stage.root / "artifacts").glob(f"*/{bad.blob_key}")).write_bytes(b"BAD")
    with open_maintenance_services(settings) as record:
        made = create_backup(record, tmp_path / "backup")
    assert made.damaged == (bad.content_hash,)
    restore(tmp_path / "backup", copy_at(tmp_path / "copy"))
    with open_maintenance_services(copy_at(tmp_path / "copy")) as record, pytest.raises(ArtifactDamaged):
        record.artifacts.read(record.artifacts.find(bad.tenant_id, bad.id))


def test_what_a_backup_names_is_not_collected_meanwhile(stage, settings, backed, monkeypatch):
    made = keep(stage, b"content")
    copied = backup._copy_blobs

    def dropped_meanwhile(*given):
        stage.artifacts.delete(made.tenant_id, made.id)
        with open_maintenance_services(settings) as record:
            record.collector.collect()
        return copied(*given)

    monkeypatch.setattr(backup, "_copy_blobs", dropped_meanwhile)
    assert list((backed() / "artifacts").rglob(made.blob_key))


@ONLY_POSTGRESQL
def test_postgresql_has_tools_of_its_own_and_the_refusal_names_them(stage, tmp_path):
    settings = Settings(data_dir=stage.root, database_url=stage.url)
    with open_maintenance_services(settings) as record, pytest.raises(BackupRefused) as refused:
        create_backup(record, tmp_path / "backup")
    assert "pg_dump" in refused.value.advice()
    with pytest.raises(RestoreRefused, match="elsewhere"):
        restore(tmp_path / "backup", settings)
