from __future__ import annotations

import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Boolean, Float, Integer, LargeBinary, insert, inspect, text
from sqlalchemy.exc import IntegrityError

from codesdk.domain.canonical import content_hash
from codesdk.eventlog.log import EVENT_BYTES
from codesdk.storage.database import Database
from codesdk.storage.migration import (
    HEAD,
    SCRIPTS_DIR,
    SchemaBehind,
    SchemaUnknown,
    downgrade,
    require_current_schema,
    upgrade,
)
from codesdk.storage.schema import metadata


@pytest.fixture
def database(databases):
    made = Database(databases.empty())
    yield made
    made.close()


def tables(database):
    return set(inspect(database.reader).get_table_names()) - {"alembic_version"}


def test_migrations_give_exactly_the_schema(database):
    upgrade(database)
    with database.writer.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    assert tables(database) == set(metadata.tables)


def test_the_newest_migration_is_the_one_that_processes_look_for():
    assert ScriptDirectory(str(SCRIPTS_DIR)).get_heads() == [HEAD]


def test_migrations_go_down_and_up_again(database):
    upgrade(database)
    downgrade(database, "base")
    assert tables(database) == set()
    upgrade(database)
    assert tables(database) == set(metadata.tables)


def test_a_database_that_is_up_to_date_is_left_alone(database):
    upgrade(database)
    with database.writer.begin() as connection:
        connection.execute(text("INSERT INTO tenants (id, name, created_at) VALUES('ten', 'x', 0)"))
    upgrade(database)
    with database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM tenants")).scalar() == 1


def test_processes_that_start_together_migrate_once(databases):
    url = databases.empty()
    processes = [Database(url) for _ in range(4)]
    threads = [threading.Thread(target=upgrade, args=(database,)) for database in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert tables(processes[0]) == set(metadata.tables)
    for database in processes:
        database.close()


def test_a_newer_versions_database_is_refused_with_what_to_do(database):
    upgrade(database)
    with database.writer.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaUnknown, match="newer"):
        upgrade(database)


def test_a_tool_uid_is_one_living_sandboxs_on_its_host(database):
    upgrade(database)
    index = next(i for i in inspect(database.reader).get_indexes("sandboxes") if i["name"] == "uq_sandboxes_host_uid")
    assert index["unique"]
    assert "gone" in str(next(value for name, value in index["dialect_options"].items() if name.endswith("_where")))


def test_of_the_calls_that_wait_for_a_look_the_index_has_no_others(database):
    upgrade(database)
    (index,) = (i for i in inspect(database.reader).get_indexes("tool_calls") if i["name"] == "ix_tool_calls_preparing")
    assert index["column_names"] == ["host_id", "state"]
    (which,) = (str(value) for name, value in index["dialect_options"].items() if name.endswith("_where"))
    assert "preparing IS NOT NULL" in which
    downgrade(database, "0034")
    assert "ix_tool_calls_preparing" not in {i["name"] for i in inspect(database.reader).get_indexes("tool_calls")}


def test_sandboxes_of_before_the_pool_are_kept_and_know_what_they_were_made_from(database):
    upgrade(database, "0001")
    with database.writer.begin() as connection:
        for statement in (
            "INSERT INTO hosts VALUES('hst', 'local', 1, 0, '{}', 0)",
            "INSERT INTO tenants VALUES('ten', 'x', 0)",
            "INSERT INTO principals VALUES('prn', 'ten', 'dev', '[]', 0)",
            """INSERT INTO sessions (id, tenant_id, principal_id, host_id, state, runtime, permission_mode, profile, image,
            labels, log_epoch, created_at) VALUES
            ('ses', 'ten', 'prn', 'hst', 'open', 'x', 'auto', '{}', 'sha256:1', '{}', 'e', 7)""",
            "INSERT INTO sandboxes (id, session_id, host_id, state, tool_uid) VALUES ('sbx', 'ses', 'hst', 'ready', 1)",
        ):
            connection.execute(text(statement))
    upgrade(database)
    with database.read() as connection:
        (row,) = connection.execute(text("SELECT * FROM sandboxes"))
    assert (row.session_id, row.state, row.image, row.profile, row.ready_at) == ("ses", "ready", "sha256:1", "{}", 7)


def test_a_way_back_forgets_the_pool_and_keeps_sessions(database):
    test_sandboxes_of_before_the_pool_are_kept_and_know_what_they_were_made_from(database)
    with database.writer.begin() as connection:
        connection.execute(text("UPDATE sandboxes SET state = 'paused'"))
        connection.execute(
            text(
                "INSERT INTO sandboxes (id, host_id, state, tool_uid, image, profile, generation)"
                " VALUES ('sbx_pool', 'hst', 'pooled', 2, 'sha256:1', '{}', 1)"
            )
        )
    downgrade(database, "0001")
    with database.read() as connection:
        rows = connection.execute(text("SELECT id, session_id, state FROM sandboxes")).all()
    assert [tuple(row) for row in rows] == [("sbx", "ses", "ready")]


def test_tenants_of_before_quotas_keep_their_keys_and_know_their_bytes(database):
    upgrade(database, "0004")
    with database.writer.begin() as connection:
        for statement in (
            "INSERT INTO tenants VALUES('ten', 'default', 0), ('two', 'other', 0)",
            """INSERT INTO principals VALUES('prn', 'ten', 'operator', '["operator"]', 0),
            ('dev', 'ten', 'operator', '["developer"]', 0), ('far', 'two', 'operator', '["operator"]', 0)""",
            "INSERT INTO api_keys VALUES('key', 'prn', 'sha256:1', 0, NULL)",
            """INSERT INTO artifacts VALUES('a', 'ten', NULL, 'sha256:2', 5, 'x', 'n', 0),
            ('b', 'ten', NULL, 'sha256:2', 7, 'x', 'n', 0)""",
        ):
            connection.execute(text(statement))
    upgrade(database)
    with database.read() as connection:
        assert connection.execute(text("SELECT id, artifact_bytes FROM tenants ORDER BY id")).all() == [
            ("ten", 12),
            ("two", 0),
        ]
        far = connection.execute(text("SELECT id FROM principals WHERE reach = 'instance'")).all()
        assert far == [("prn",)]
        assert connection.execute(text("SELECT name, prefix, expires_at FROM api_keys")).all() == [("", "", None)]


def test_an_older_version_lets_nobody_in_whom_this_one_keeps_out(database):
    test_tenants_of_before_quotas_keep_their_keys_and_know_their_bytes(database)
    with database.writer.begin() as connection:
        for statement in (
            "INSERT INTO api_keys (id, principal_id, hash, created_at, expires_at) VALUES('old', 'prn', 'sha256:3', 0, 9)",
            "INSERT INTO api_keys (id, principal_id, hash, created_at) VALUES('off', 'dev', 'sha256:4', 0)",
            "INSERT INTO api_keys (id, principal_id, hash, created_at) VALUES('sus', 'far', 'sha256:5', 0)",
            "UPDATE principals SET disabled_at = 1 WHERE id = 'dev'",
            "UPDATE tenants SET suspended_at = 1 WHERE id = 'two'",
        ):
            connection.execute(text(statement))
    downgrade(database, "0004")
    with database.read() as connection:
        assert connection.execute(text("SELECT id FROM api_keys WHERE revoked_at IS NULL")).all() == [("key",)]


def test_artifacts_of_before_the_blobs_keep_their_files_and_share_them(database):
    upgrade(database, "0005")
    digest = "0a" * 32
    with database.writer.begin() as connection:
        connection.execute(text("INSERT INTO tenants (id, name, created_at) VALUES ('ten', 'x', 0)"))
        for name in ("art_1", "art_2"):
            connection.execute(
                text(
                    "INSERT INTO artifacts (id, tenant_id, content_hash, size, content_type, name, created_at)"
                    f" VALUES ('{name}', 'ten', 'sha256:{digest}', 7, 'a/b', 'n', 0)"
                )
            )
    upgrade(database)
    with database.read() as connection:
        (blob,) = connection.execute(text("SELECT * FROM blobs"))
        keys = connection.execute(text("SELECT blob_key FROM artifacts")).scalars().all()
    assert (blob.key, blob.size, blob.digests, blob.state) == (digest, 7, None, "stored")
    assert keys == [digest] * 2
    downgrade(database, "0005")
    with database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM artifacts")).scalar() == 2


def test_a_process_that_must_not_migrate_sees_what_is_missing_and_changes_nothing(database):
    with pytest.raises(SchemaBehind, match="revision none"):
        require_current_schema(database)
    assert tables(database) == set()
    upgrade(database, "0001")
    with pytest.raises(SchemaBehind, match="revision 0001"):
        require_current_schema(database)
    upgrade(database)
    require_current_schema(database)


def test_a_newer_schema_is_not_taken_for_one_that_lacks_something(database):
    upgrade(database)
    with database.writer.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'future'"))
    with pytest.raises(SchemaUnknown):
        require_current_schema(database)


def filled(database):
    """One row in every table that is there, made from the schema: foreign keys name the row of their table."""
    known = inspect(database.reader)
    here = {name: {column["name"] for column in known.get_columns(name)} for name in known.get_table_names()}
    with database.writer.begin() as connection:
        for table in metadata.sorted_tables:
            columns = [column for column in table.columns if column.name in here.get(table.name, ())]
            if columns:
                connection.execute(insert(table).values({column.name: value_of(column) for column in columns}))


def value_of(column):
    if column.foreign_keys:
        (key,) = column.foreign_keys
        return value_of(key.column)
    if isinstance(column.type, LargeBinary):
        return b"x"
    if isinstance(column.type, Boolean):
        return False
    if isinstance(column.type, Integer):
        return 1
    if isinstance(column.type, Float):
        return 1.0
    return {"roles": "[]", "labels": "{}", "profile": "{}", "images": "{}", "sources": "[]"}.get(column.name, "x")


def count(database, table):
    with database.read() as connection:
        return connection.execute(text(f"SELECT count(*) FROM {table}")).scalar()


def test_every_migration_goes_down_and_up_with_a_row_in_every_table(database):
    upgrade(database)
    filled(database)
    script = ScriptDirectory(str(SCRIPTS_DIR))
    for revision in [each.revision for each in script.walk_revisions()]:
        down = script.get_revision(revision).down_revision or "base"
        downgrade(database, down)
        upgrade(database, revision)
        assert count(database, "tenants") == (1 if down != "base" else 0)
        downgrade(database, down)
    assert tables(database) == set()


def test_a_session_that_was_imported_before_is_known_as_one(database):
    upgrade(database, "0007")
    with database.writer.begin() as connection:
        for statement in (
            "INSERT INTO hosts VALUES('hst', 'import', 1, 0, '{}', 0), ('own', 'local', 1, 0, '{\"a\":\"b\"}', 0)",
            "INSERT INTO tenants (id, name, created_at) VALUES('ten', 'x', 0)",
            """INSERT INTO principals (id, tenant_id, name, roles, created_at)
            VALUES('prn', 'ten', 'import', '[]', 0), ('dev', 'ten', 'dev', '["developer"]', 0)""",
            """INSERT INTO sessions (id, tenant_id, principal_id, host_id, state, runtime, permission_mode, profile, image,
            labels, log_epoch, created_at, closed_at) VALUES
            ('came', 'ten', 'prn', 'hst', 'closed', 'x', 'auto', '{}', 'i', '{}', 'e', 7, 9),
            ('made', 'ten', 'dev', 'own', 'closed', 'x', 'auto', '{}', 'i', '{}', 'e', 7, 9)""",
        ):
            connection.execute(text(statement))
    upgrade(database)
    with database.read() as connection:
        rows = connection.execute(text("SELECT id, imported_at FROM sessions ORDER BY id")).all()
    assert [tuple(row) for row in rows] == [("came", 9), ("made", None)]


def test_a_way_back_holds_at_auto_what_no_tenant_was_allowed(database):
    test_tenants_of_before_quotas_keep_their_keys_and_know_their_bytes(database)
    with database.writer.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO hosts (id, name, generation, heartbeat, images, registered_at) VALUES ('h', 'local', 1, 0, '{}', 0)"
            )
        )
        connection.execute(text("UPDATE tenants SET yolo = true WHERE id = 'two'"))
        for session, tenant, holder in (("s1", "ten", "dev"), ("s2", "two", "far")):
            connection.execute(
                text(
                    "INSERT INTO sessions (id, tenant_id, principal_id, host_id, state, runtime, permission_mode, profile,"
                    f" image, labels, log_epoch, created_at) VALUES('{session}', '{tenant}', '{holder}', 'h', 'open', 'x',"
                    " 'yolo', '{}', 'i', '{}', 'e', 7)"
                )
            )
    downgrade(database, "0017")
    with database.read() as connection:
        found = connection.execute(
            text("SELECT id, permission_mode FROM sessions WHERE id LIKE 's_' ORDER BY id")
        ).all()
    assert found == [("s1", "auto"), ("s2", "yolo")]


GRANT = """INSERT INTO grants (id, tenant_id, principal_id, session_id, approval_id, tool, rules, schema_hash, image, granted_by,
reason, created_at, expires_at, uses) VALUES """


def test_grants_of_before_hold_under_the_profile_of_the_session_in_which_they_were_given(database):
    upgrade(database, "0020")
    filled(database)
    with database.writer.begin() as connection:
        connection.execute(text('UPDATE sessions SET profile = \'{"pids": 256, "name": "small"}\''))
        connection.execute(text("UPDATE grants SET ended_at = NULL, session_id = NULL"))
        connection.execute(text(GRANT + "('left', 'x', 'x', 'x', 'removed', 't', '{}', 'h', 'i', 'x', '', 1, 9, 0)"))
    upgrade(database)
    with database.read() as connection:
        rows = connection.execute(text("SELECT profile, profile_hash, ended_why FROM grants ORDER BY id DESC")).all()
    assert rows[0][:2] == ("small", content_hash({"name": "small", "pids": 256}))
    assert rows[1][:2] == ("", "")
    assert "removed" in rows[1].ended_why
    downgrade(database, "0020")
    with database.read() as connection:
        found = connection.execute(text("SELECT id, ended_at FROM grants ORDER BY id DESC")).all()
    assert all(row.ended_at for row in found)


CALL = """INSERT INTO tool_calls (id, attempt, session_id, tenant_id, host_id, runtime_tool_call_id, name, input, input_hash,
schema_hash, serial, state, sources, requested_at) VALUES """
ROW = "('{}', 1, '{}', 'x', 'x', {}, 'n', '{{}}', 'h', 's', false, 'completed', '[]', {})"


def test_of_calls_that_were_given_one_id_before_the_first_keeps_it(database):
    upgrade(database, "0032")
    filled(database)
    calls = [
        ("late", "'a'", 3),
        ("early", "'a'", 1),
        ("same", "'a'", 1),
        ("other", "'b'", 2),
        ("un", "NULL", 1),
        ("und", "NULL", 1),
    ]
    with database.writer.begin() as connection:
        for id_, given, at in calls:
            connection.execute(text(CALL + ROW.format(id_, "x", given, at)))
    upgrade(database)
    with database.read() as connection:
        rows = connection.execute(text("SELECT id, runtime_tool_call_id FROM tool_calls WHERE id <> 'x'")).all()
    assert dict(map(tuple, rows)) == dict.fromkeys(("late", "same", "un", "und")) | {"early": "a", "other": "b"}
    with pytest.raises(IntegrityError), database.writer.begin() as connection:
        connection.execute(text(CALL + ROW.format("again", "x", "'a'", 4)))


def test_logs_and_calls_of_before_are_counted_in_bytes(database):
    upgrade(database, "0036")
    filled(database)
    with database.writer.begin() as connection:
        connection.execute(text("UPDATE events SET body = 'é€'"))
        connection.execute(text("UPDATE tool_calls SET input = 'ab', result = NULL"))
        connection.execute(text("UPDATE approvals SET shown = 'abc'"))
    upgrade(database)
    with database.read() as connection:
        assert connection.execute(text("SELECT log_bytes FROM sessions")).scalar() == EVENT_BYTES + 5 + 2 + 3
