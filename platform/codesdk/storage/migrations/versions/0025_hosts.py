"""what hosts offer, and whether they are there

Revision: 0025, after 0024
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A host that is known counts as left in order, until a worker of this version registers it."""
    for column in (
        sa.Column("engine", sa.String(400), nullable=False, server_default=sa.text("''")),
        sa.Column("state", sa.String(16), nullable=False, server_default=sa.text("'active'")),
        sa.Column("labels", sa.Text(), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("millicpus", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("most_sessions", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("left_at", sa.Float()),
    ):
        op.add_column("hosts", column)
    op.add_column("sessions", sa.Column("closed_reason", sa.Text()))
    op.execute("UPDATE hosts SET left_at = registered_at")


def downgrade() -> None:
    """Undo it. The version before places on every host that has the image, draining or lost or not."""
    for column in ("left_at", "most_sessions", "millicpus", "memory_bytes", "labels", "state", "engine"):
        op.drop_column("hosts", column)
    op.drop_column("sessions", "closed_reason")
