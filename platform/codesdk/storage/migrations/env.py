"""Alembic's entry point: runs on the connection from `storage.migration`."""

from __future__ import annotations

from alembic import context

from codesdk.storage.schema import metadata

connection = context.config.attributes["connection"]
# Batch mode copies the table, because SQLite's ALTER TABLE can do little.
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
