"""when a host was last heard, and which MCP servers its worker has

Revision: 0029, after 0028
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nobody has been heard yet: the next heartbeat says when, and a worker's first look which servers it has."""
    op.add_column("hosts", sa.Column("heard_at", sa.Float()))
    op.create_table(
        "source_servers",
        sa.Column("host_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.String(length=40), nullable=False),
        sa.Column("session_id", sa.String(length=40)),
        sa.Column("tenant_id", sa.String(length=40)),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("since", sa.Float()),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_source_servers_host_id_hosts")),
        sa.PrimaryKeyConstraint("host_id", "number", name=op.f("pk_source_servers")),
    )


def downgrade() -> None:
    """Undo it."""
    op.drop_table("source_servers")
    op.drop_column("hosts", "heard_at")
