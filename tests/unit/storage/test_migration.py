from __future__ import annotations

import threading

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from codesdk.storage.database import Database
from codesdk.storage.migration import SCRIPTS, SchemaUnknown, upgrade
from codesdk.storage.schema import metadata


@pytest.fixture
def database(tmp_path):
    made = Database(f"sqlite:///{tmp_path / 'm.db'}")
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


def test_migrations_go_down_and_up_again(database):
    upgrade(database)
    with database.writer.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS))
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert tables(database) == set()
    upgrade(database)
    assert tables(database) == set(metadata.tables)


def test_a_database_that_is_up_to_date_is_left_alone(database):
    upgrade(database)
    with database.writer.begin() as connection:
        connection.execute(text("INSERT INTO tenants VALUES('ten', 'x', 0)"))
    upgrade(database)
    with database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM tenants")).scalar() == 1


def test_processes_that_start_together_migrate_once(tmp_path):
    databases = [Database(f"sqlite:///{tmp_path / 'm.db'}") for _ in range(4)]
    threads = [threading.Thread(target=upgrade, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert tables(databases[0]) == set(metadata.tables)
    for database in databases:
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
    assert "gone" in str(index["dialect_options"]["sqlite_where"])
