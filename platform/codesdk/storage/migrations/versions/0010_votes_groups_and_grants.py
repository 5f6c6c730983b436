"""votes, groups and grants

Revision: 0010, after 0009
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_ID = sa.String(length=40)
_GROUP = sa.String(length=64)
_HASH = sa.String(length=71)


def _columns() -> tuple[tuple[str, sa.Column[Any]], ...]:
    return (
        ("approvals", sa.Column("not_requester", sa.Boolean(), nullable=False, server_default=sa.text("false"))),
        ("approvals", sa.Column("grant_offer", sa.Text(), nullable=True)),
        ("approvals", sa.Column("rules", sa.Text(), nullable=False, server_default=sa.text("'[]'"))),
        ("tool_calls", sa.Column("grant_id", _ID, nullable=True)),
    )


_INDEXES = (
    ("ix_group_members_principal", "group_members", ["principal_id"]),
    ("ix_approval_demands_escalate", "approval_demands", ["escalated", "escalate_at"]),
    ("ix_grants_of", "grants", ["tenant_id", "principal_id", "tool"]),
    ("ix_grants_tenant", "grants", ["tenant_id", "created_at"]),
    ("ix_grants_session", "grants", ["session_id"]),
)


def _refers(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{to}.id"], name=op.f(f"fk_{table}_{column}_{to}"))


def upgrade() -> None:
    """Groups of principals, one row a vote, what each approval demands, and grants."""
    for table, column in _columns():
        op.add_column(table, column)
    op.create_table(
        "group_members",
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("name", _GROUP, nullable=False),
        sa.Column("principal_id", _ID, nullable=False),
        sa.Column("added_at", sa.Float(), nullable=False),
        _refers("group_members", "tenant_id", "tenants"),
        _refers("group_members", "principal_id", "principals"),
        sa.PrimaryKeyConstraint("tenant_id", "name", "principal_id", name=op.f("pk_group_members")),
    )
    op.create_table(
        "approval_demands",
        sa.Column("approval_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("group_name", _GROUP, nullable=True),
        sa.Column("quorum", sa.Integer(), nullable=False),
        sa.Column("escalate_at", sa.Float(), nullable=True),
        sa.Column("escalate_to", _GROUP, nullable=True),
        sa.Column("escalated", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        _refers("approval_demands", "approval_id", "approvals"),
        sa.PrimaryKeyConstraint("approval_id", "number", name=op.f("pk_approval_demands")),
    )
    op.create_table(
        "approval_votes",
        sa.Column("approval_id", _ID, nullable=False),
        sa.Column("principal_id", _ID, nullable=False),
        sa.Column("verdict", sa.String(length=8), nullable=False),
        sa.Column("comment", sa.Text(), nullable=True),
        sa.Column("voted_at", sa.Float(), nullable=False),
        _refers("approval_votes", "approval_id", "approvals"),
        _refers("approval_votes", "principal_id", "principals"),
        sa.PrimaryKeyConstraint("approval_id", "principal_id", name=op.f("pk_approval_votes")),
    )
    op.create_table(
        "grants",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("principal_id", _ID, nullable=False),
        sa.Column("session_id", _ID, nullable=True),
        sa.Column("approval_id", _ID, nullable=False),
        sa.Column("tool", sa.String(length=64), nullable=False),
        sa.Column("rules", sa.Text(), nullable=False),
        sa.Column("input_hash", _HASH, nullable=True),
        sa.Column("schema_hash", _HASH, nullable=False),
        sa.Column("image", sa.String(length=80), nullable=False),
        sa.Column("granted_by", _ID, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("max_uses", sa.Integer(), nullable=True),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("ended_by", _ID, nullable=True),
        sa.Column("ended_why", sa.Text(), nullable=True),
        _refers("grants", "tenant_id", "tenants"),
        _refers("grants", "principal_id", "principals"),
        _refers("grants", "session_id", "sessions"),
        _refers("grants", "granted_by", "principals"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grants")),
    )
    for name, table, columns in _INDEXES:
        op.create_index(name, table, columns)
    # Whoever decided an approval so far voted on it: the same vote again is no error after the upgrade either.
    op.execute(
        "INSERT INTO approval_votes (approval_id, principal_id, verdict, comment, voted_at)"
        " SELECT id, decided_by, CASE state WHEN 'rejected' THEN 'reject' ELSE 'approve' END, comment, decided_at"
        " FROM approvals WHERE decided_by IS NOT NULL AND decided_at IS NOT NULL"
        " AND decided_by IN (SELECT id FROM principals)"
    )


def downgrade() -> None:
    """Undo it. What waits for more than one person's yes is cancelled: an older version would take one for enough."""
    op.execute(
        "UPDATE approvals SET state = 'cancelled' WHERE state IN ('pending', 'approved') AND"
        " (not_requester OR id IN (SELECT approval_id FROM approval_demands))"
    )
    for name, table, _ in reversed(_INDEXES):
        op.drop_index(name, table_name=table)
    for table in ("grants", "approval_votes", "approval_demands", "group_members"):
        op.drop_table(table)
    for table, column in reversed(_columns()):
        op.drop_column(table, column.name)
