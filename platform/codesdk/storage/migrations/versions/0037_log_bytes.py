"""how many bytes each session's log and calls take

Revision: 0037, after 0036
"""
# ruff: noqa: S608 - the statements are made of constants

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

_EVENT_BYTES = 128


def upgrade() -> None:
    """Count existing sessions once, which reads the whole log: about a gigabyte in a few seconds."""
    op.add_column("sessions", sa.Column("log_bytes", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    is_sqlite = op.get_bind().dialect.name == "sqlite"

    def size(column: str) -> str:
        return f"COALESCE(length(CAST({column} AS BLOB)), 0)" if is_sqlite else f"COALESCE(octet_length({column}), 0)"

    events = f"SELECT SUM({size('body')} + {_EVENT_BYTES}) FROM events WHERE session_id = sessions.id"
    calls = f"SELECT SUM({size('input')} + {size('result')}) FROM tool_calls WHERE session_id = sessions.id"
    asked = f"SELECT SUM({size('shown')}) FROM approvals WHERE session_id = sessions.id"
    total = " + ".join(f"COALESCE(({query}), 0)" for query in (events, calls, asked))
    op.execute(f"UPDATE sessions SET log_bytes = {total}")


def downgrade() -> None:
    """Undo it."""
    op.drop_column("sessions", "log_bytes")
