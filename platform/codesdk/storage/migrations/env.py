"""Alembic's entry: runs on the connection that `storage.migration` hands over."""

from __future__ import annotations

from alembic import context

from codesdk.storage.schema import metadata

connection = context.config.attributes["connection"]
# SQLite cannot alter most things in place: batch mode copies the table.
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
