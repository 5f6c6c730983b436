"""Moving logs between installations, and removing old sessions."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from codesdk.archive import log_import, store
from codesdk.archive.export_format import ExportInvalid
from codesdk.archive.log_export import export_logs
from codesdk.archive.log_import import (
    ArtifactExists,
    BytesMissing,
    LogGap,
    SessionExists,
    TenantNotMapped,
    import_logs,
)
from codesdk.archive.retention import DAY_S, PruneSummary, Retention
from codesdk.artifacts import ArtifactUnknown
from codesdk.bootstrap.maintenance import open_maintenance_services
from codesdk.domain.clock import SystemClock
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.events import EventUnreadable
from codesdk.domain.invariants import first_violation
from codesdk.domain.quotas import QuotaExceeded, Resource
from codesdk.domain.upcasting import SchemaTooNew
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import EventLog
from codesdk.hosts import store as host_store
from codesdk.sessions import NewSession, SessionUnknown
from codesdk.sessions import store as session_store
from codesdk.sessions.session import SessionRemoved
from codesdk.settings import Settings
from codesdk.storage.database import Database
from codesdk.storage.faults import WriteConflict
from codesdk.storage.migration import upgrade
from databases import BOTH
from stage import Room, said


@pytest.fixture(params=BOTH)
def database_kind(request):
    return request.param


@pytest.fixture
def source(stage):
    """A session that ran a call whose output is an artifact."""
    stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    stage.execution().run(stage.claims().take(), lambda: Room(said(b"line\n" * 20_000)))
    return stage


@pytest.fixture
def elsewhere(tmp_path, databases):
    """Opens another installation, of the same kind of database."""
    url = databases.empty()
    database = Database(url)
    upgrade(database)
    with database.writer.begin() as connection:
        connection.execute(text("INSERT INTO tenants (id, name, created_at) VALUES ('ten_there', 'there', 0)"))
    database.close()
    settings = Settings(data_dir=tmp_path / "elsewhere", database_url=url)
    settings.prepare_data_dir()

    @contextmanager
    def opened():
        with open_maintenance_services(settings) as record:
            yield record

    return opened


@contextmanager
def record_of(stage):
    with open_maintenance_services(Settings(data_dir=stage.root, database_url=stage.url)) as record:
        yield record


def exported(stage, tmp_path, session=None, *, with_bytes=True):
    file, directory = tmp_path / "out.jsonl", tmp_path / "bytes"
    with record_of(stage) as record, file.open("w", encoding="utf-8") as out:
        export_logs(record, out, session, directory if with_bytes else None)
    return file, directory if with_bytes else None


def log_of(record):
    return EventLog(record.database, SystemClock(), LocalHints())


def test_a_log_comes_out_there_as_it_went_in_here_with_its_artifacts(source, elsewhere, tmp_path):
    file, directory = exported(source, tmp_path)
    owned = source.artifacts.of_session(source.session.id)
    assert len(owned) > 0
    with elsewhere() as record:
        done = import_logs(record, file, "there", directory)
        assert (done.sessions, done.artifacts) == (1, len(owned))
        events = log_of(record).read(source.session.id)
        assert events == source.events()
        assert first_violation(events) is None
        for artifact in owned:
            there = record.artifacts.find("ten_there", artifact.id)
            assert (there.content_hash, there.created_at) == (artifact.content_hash, artifact.created_at)
            assert record.artifacts.read(there) == source.artifacts.read(artifact)
        epoch, head = log_of(record).position(source.session.id)
        assert head == len(events)
        assert epoch != source.log.position(source.session.id)[0]
        assert record.quotas.report(record.database, "ten_there")[3].used == sum(one.size for one in owned)


def test_no_host_is_shown_for_imported_sessions_and_a_worker_may_be_named_import(source, elsewhere, tmp_path):
    file, directory = exported(source, tmp_path)
    with elsewhere() as record:
        import_logs(record, file, "there", directory)
        with record.database.read() as connection:
            assert host_store.list_hosts(connection) == []
            stands_for_it = connection.execute(text("SELECT id FROM hosts")).scalar_one()
            assert [host_store.find(connection, wanted) for wanted in (log_import.HOST_NAME, stands_for_it)] == [
                None,
                None,
            ]
        record.writer.run(lambda unit: host_store.insert(unit.connection, "hst_real", "import", 0.0, {"images": "{}"}))
        with record.database.read() as connection:
            assert [host.name for host in host_store.list_hosts(connection)] == ["import"]
            assert host_store.find(connection, "import").id == "hst_real"


def test_without_the_bytes_what_events_refer_to_leads_nowhere(source, elsewhere, tmp_path):
    file, _ = exported(source, tmp_path, with_bytes=False)
    with elsewhere() as record:
        assert import_logs(record, file, "there", None).artifacts == 0
        with pytest.raises(ArtifactUnknown):
            record.artifacts.find("ten_there", source.artifacts.of_session(source.session.id)[0].id)


def test_an_export_of_one_session_holds_no_other(source, elsewhere, tmp_path):
    other = source.open_session()
    file, _ = exported(source, tmp_path, other.session_id)
    heads = [json.loads(line)["id"] for line in file.read_text().splitlines() if '"kind":"session"' in line]
    assert heads == [other.session_id]
    with record_of(source) as record, pytest.raises(SessionUnknown), (tmp_path / "none").open("w") as out:
        export_logs(record, out, "ses_none", None)


def test_a_log_that_is_here_is_never_changed(source, elsewhere, tmp_path):
    file, directory = exported(source, tmp_path)
    with elsewhere() as record:
        import_logs(record, file, "there", None)
        with pytest.raises(SessionExists):
            import_logs(record, file, "there", None)
    before = source.events()
    with record_of(source) as record, pytest.raises(SessionExists):
        import_logs(record, file, None, directory)
    assert source.events() == before


def test_an_artifact_that_is_here_is_not_taken_twice_and_its_session_stays_out(source, elsewhere, tmp_path):
    file, directory = exported(source, tmp_path)
    with elsewhere() as record:
        import_logs(record, file, "there", directory)
        (session,) = [source.session.id]
        with record.database.writer.begin() as connection:
            connection.execute(text("UPDATE artifacts SET session_id = NULL"))
            connection.execute(text("DELETE FROM events"))
            connection.execute(text("DELETE FROM sessions"))
        with pytest.raises(ArtifactExists):
            import_logs(record, file, "there", directory)
        assert log_of(record).head(session) == 0


def test_whose_it_shall_be_is_said_and_never_guessed(source, elsewhere, tmp_path):
    file, _ = exported(source, tmp_path)
    with elsewhere() as record:
        for tenant in (None, "nobody"):
            with pytest.raises(TenantNotMapped):
                import_logs(record, file, tenant, None)
        assert log_of(record).head(source.session.id) == 0


def edited(file, edit):
    parsed = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(line) + "\n" for line in edit(parsed)))


def events_at(parsed):
    return [place for place, line in enumerate(parsed) if line["kind"] == "event"]


def without(parsed, place):
    return parsed[:place] + parsed[place + 1 :]


def changed(parsed, place, **values):
    line = parsed[place]
    return [*parsed[:place], {**line, "event": {**line["event"], **values}}, *parsed[place + 1 :]]


DAMAGE = {
    "an event is missing": (lambda lines: without(lines, events_at(lines)[2]), LogGap),
    "an event is twice": (lambda lines: [*lines[:4], lines[3], *lines[4:]], LogGap),
    "the first is missing": (lambda lines: without(lines, events_at(lines)[0]), LogGap),
    "the last is missing": (lambda lines: without(lines, events_at(lines)[-1]), ExportInvalid),
    "an artifact is missing": (
        lambda lines: [line for line in lines if line["kind"] != "artifact"],
        ExportInvalid,
    ),
    "the end is missing": (lambda lines: lines[:-1], ExportInvalid),
    "another format": (lambda lines: [{**lines[0], "format": 2}, *lines[1:]], ExportInvalid),
    "no header": (lambda lines: lines[1:], ExportInvalid),
    "a stranger's event": (
        lambda lines: changed(lines, 3, trace={"session_id": "ses_00000000000000000000000009"}),
        ExportInvalid,
    ),
    "a newer event": (lambda lines: changed(lines, 3, schema_version=99), SchemaTooNew),
    "half a character": (lambda lines: changed(lines, 3, payload={"text": "\ud800"}), ExportInvalid),
    "no number": (lambda lines: changed(lines, 3, payload={"n": float("nan")}), ExportInvalid),
    "no event": (lambda lines: changed(lines, 3, type="tool.banana"), ExportInvalid),
    "a mode that is none": (
        lambda lines: [lines[0], {**lines[1], "permission_mode": "banana"}, *lines[2:]],
        ExportInvalid,
    ),
    "an unknown line": (lambda lines: [*lines, {"kind": "more"}], ExportInvalid),
    "no object": (lambda lines: [*lines, 7], ExportInvalid),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_nothing_of_a_wrong_file_comes_in(source, elsewhere, tmp_path, damage):
    source.open_session()  # stands after the damaged one, or before it
    file, _ = exported(source, tmp_path)
    edit, fault = DAMAGE[damage]
    edited(file, edit)
    with elsewhere() as record:
        with pytest.raises(fault):
            import_logs(record, file, "there", None)
        assert log_of(record).heads([source.session.id]) == {}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('{"kind": "event", "event": {"n": NaN}}', "a number that JSON does not allow"),
        ('{"kind": "event", "event": {"n": 1e999}}', "a number that JSON does not allow"),
        ('{"kind": "event", "event": {"\\ud800": 1}}', "half of a character"),
        ('{"kind": "event", "event": ' + "[" * 100_000, "nested too deeply"),
        ('{"kind": "session"}', "session.id|id: Field required"),
        ('{"kind": "event"', "Expecting"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_the_reason(source, elsewhere, tmp_path, said, why):
    file, _ = exported(source, tmp_path)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], said, *lines[2:]]) + "\n")
    with elsewhere() as record, pytest.raises(ExportInvalid, match=rf"Line 3 .*({why})"):
        import_logs(record, file, "there", None)


def test_every_mode_of_a_session_comes_through(source, elsewhere, tmp_path):
    source.sql("UPDATE sessions SET permission_mode = 'yolo'")
    file, _ = exported(source, tmp_path)
    with elsewhere() as record:
        import_logs(record, file, "there", None)
        with record.database.read() as connection:
            assert session_store.find(connection, "ten_there", source.session.id).permission_mode is PermissionMode.YOLO
            assert session_store.imported_at(connection, source.session.id) > 0
    with source.database.read() as connection:
        assert session_store.imported_at(connection, source.session.id) is None


def test_a_row_that_is_no_event_ends_an_export_with_its_name(source, tmp_path):
    with source.unreadable(source.session.id, 2, "{cut"), pytest.raises(EventUnreadable, match="Event 2"):
        exported(source, tmp_path)


@pytest.mark.parametrize("cut", [1, 30, 500])
def test_a_file_that_is_cut_off_is_noticed(source, elsewhere, tmp_path, cut):
    file, _ = exported(source, tmp_path)
    file.write_bytes(file.read_bytes()[:-cut])
    with elsewhere() as record, pytest.raises(ExportInvalid):
        import_logs(record, file, "there", None)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\n", b"{}\n", b"[" * 100_000 + b"\n", b'{"kind": []}\n'])
def test_what_is_no_export_is_refused(elsewhere, tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with elsewhere() as record, pytest.raises(ExportInvalid):
        import_logs(record, tmp_path / "file", "there", None)


@pytest.mark.parametrize("damage", ["gone", "other"])
def test_bytes_that_are_missing_or_others_keep_everything_out(source, elsewhere, tmp_path, damage):
    file, directory = exported(source, tmp_path)
    one = next(directory.iterdir())
    one.unlink() if damage == "gone" else one.write_bytes(b"other")
    with elsewhere() as record:
        with pytest.raises(BytesMissing):
            import_logs(record, file, "there", directory)
        assert log_of(record).head(source.session.id) == 0


def test_a_tenant_without_room_gets_neither_bytes_nor_log(source, elsewhere, tmp_path):
    file, directory = exported(source, tmp_path)
    with elsewhere() as record:
        record.writer.run(lambda unit: record.quotas.set_limits(unit, "ten_there", {Resource.ARTIFACT_BYTES: 10}))
        with pytest.raises(QuotaExceeded):
            import_logs(record, file, "there", directory)
        assert log_of(record).head(source.session.id) == 0


def test_a_long_log_comes_whole_in_pages(source, elsewhere, tmp_path, monkeypatch):
    monkeypatch.setattr(log_import, "PAGE_SIZE", 3)
    file, _ = exported(source, tmp_path)
    with elsewhere() as record:
        import_logs(record, file, "there", None)
        assert log_of(record).read(source.session.id) == source.events()


def test_a_session_whose_unit_is_run_again_still_comes_whole(source, elsewhere, tmp_path, monkeypatch):
    real, tries = store.set_last_seq, []

    def overtaken_once(*given):
        real(*given)
        tries.append(given)
        if len(tries) == 1:
            raise WriteConflict("Another process was faster.")

    monkeypatch.setattr(store, "set_last_seq", overtaken_once)
    source.open_session()  # a second one in the file, after the one whose lines are read twice
    file, directory = exported(source, tmp_path)
    with elsewhere() as record:
        done = import_logs(record, file, "there", directory)
        assert len(tries) == done.sessions + 1 == 3
        assert log_of(record).read(source.session.id) == source.events()


@pytest.fixture
def retention(stage):
    return Retention(database=stage.database, writer=stage.writer, artifacts=stage.artifacts, clock=stage.clock)


def closed(stage):
    """The stage's session, closed, its sandbox gone."""
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    stage.sql("UPDATE sandboxes SET state = 'gone'")


def test_an_old_session_is_removed_whole_and_whoever_asks_is_told(source, retention):
    tenant, session = source.principal.tenant_id, source.session.id
    young = source.open_session()
    source.sessions.close(tenant, young.session_id)
    closed(source)
    source.sql("UPDATE sessions SET closed_at = closed_at + :day WHERE id = :id", day=DAY_S * 5, id=young.session_id)
    events, artifacts = len(source.events()), len(source.artifacts.of_session(session))
    source.clock.advance(3 * DAY_S)
    assert retention.prune(3.5 * DAY_S, reason="test") == PruneSummary()
    would_be = retention.prune(2 * DAY_S, reason="test", dry=True)
    removed = retention.prune(2 * DAY_S, reason="test")
    assert removed == would_be == PruneSummary(sessions=(session,), events=events, artifacts=artifacts)
    assert source.log.read(session) == []
    assert source.artifacts.of_session(session) == []
    assert source.sql("SELECT artifact_bytes FROM tenants")[0].artifact_bytes == 0
    with pytest.raises(SessionRemoved) as gone:
        source.sessions.find(tenant, session)
    assert gone.value.status == 410
    stranger, _ = source.enroll("other", "eve")
    with pytest.raises(SessionUnknown):
        source.sessions.find(stranger.tenant_id, session)
    (note,) = source.sql("SELECT * FROM removed_sessions")
    assert (note.id, note.last_seq, note.reason) == (session, events, "test")
    assert source.sessions.find(tenant, young.session_id).last_seq == len(source.events(young))
    assert retention.prune(2 * DAY_S, reason="test") == PruneSummary()


def test_a_session_whose_sandbox_is_not_gone_or_that_seeds_an_open_one_stays(source, retention):
    closed(source)
    source.clock.advance(10 * DAY_S)
    source.sql("UPDATE sandboxes SET state = 'closing'")
    assert retention.prune(DAY_S, reason="test") == PruneSummary()
    source.sql("UPDATE sandboxes SET state = 'gone'")
    seed = source.artifacts.of_session(source.session.id)[0]
    source.sessions.open(source.principal, NewSession(seed_artifact=seed.id))
    assert retention.prune(DAY_S, reason="test") == PruneSummary()


def test_a_removed_session_can_be_imported_again(source, retention, tmp_path):
    closed(source)
    before = source.events()
    file, directory = exported(source, tmp_path)
    source.clock.advance(10 * DAY_S)
    assert len(retention.prune(DAY_S, reason="test").sessions) == 1
    with record_of(source) as record:
        import_logs(record, file, None, directory)
    assert source.events() == before
    assert source.sessions.find(source.principal.tenant_id, source.session.id).state == "closed"
