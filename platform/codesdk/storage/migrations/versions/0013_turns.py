"""turns

Revision: 0013, after 0012
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_ID = sa.String(length=40)
_COLUMNS: tuple[tuple[str, sa.Column[Any]], ...] = (
    ("tenants", sa.Column("weight", sa.Integer(), nullable=False, server_default=sa.text("1"))),
    ("sessions", sa.Column("priority", sa.String(length=16), nullable=False, server_default=sa.text("'interactive'"))),
    ("sessions", sa.Column("parallel_calls", sa.Integer(), nullable=False, server_default=sa.text("16"))),
    ("tool_calls", sa.Column("batch", sa.Boolean(), nullable=False, server_default=sa.text("false"))),
    ("tool_calls", sa.Column("held", sa.Boolean(), nullable=False, server_default=sa.text("true"))),
)
_INDEXES = (
    ("ix_turns_next", "turns", ["host_id", "waiting", "position", "tenant_id"]),
    ("ix_turns_last", "turns", ["host_id", "position"]),
    ("ix_turns_tenant", "turns", ["tenant_id"]),
    ("ix_tool_calls_next", "tool_calls", ["host_id", "state", "tenant_id", "held", "batch", "queued_at", "id"]),
    ("ix_tool_calls_session", "tool_calls", ["session_id", "state", "held", "queued_at", "id"]),
)


def upgrade() -> None:
    """Tenants are served in turn; what is queued now is let go by the first worker that starts."""
    for table, column in _COLUMNS:
        op.add_column(table, column)
    op.create_table(
        "turns",
        sa.Column("host_id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("position", sa.Float(), nullable=False),
        sa.Column("waiting", sa.Boolean(), nullable=False),
        sa.Column("stamp", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_turns_host_id_hosts")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_turns_tenant_id_tenants")),
        sa.PrimaryKeyConstraint("host_id", "tenant_id", name=op.f("pk_turns")),
    )
    op.execute(
        "INSERT INTO turns (host_id, tenant_id, position, waiting, stamp)"
        " SELECT DISTINCT host_id, tenant_id, 0.0, true, 0 FROM tool_calls WHERE state = 'queued'"
    )
    op.drop_index("ix_tool_calls_host_state", table_name="tool_calls")
    op.drop_index("ix_tool_calls_session", table_name="tool_calls")
    for name, table, columns in _INDEXES:
        op.create_index(name, table, columns)


def downgrade() -> None:
    """Undo it: the oldest call is served first, whosever it is."""
    for name, table, _columns in _INDEXES:
        op.drop_index(name, table_name=table)
    op.create_index("ix_tool_calls_host_state", "tool_calls", ["host_id", "state", "queued_at"])
    op.create_index("ix_tool_calls_session", "tool_calls", ["session_id", "state"])
    op.drop_table("turns")
    for table, column in reversed(_COLUMNS):
        op.drop_column(table, column.name)
