"""audit

Revision: 0016, after 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Chains of administrative acts, their ends, and how far each session's log is sealed."""
    op.create_table(
        "audit_entries",
        sa.Column("chain", sa.String(length=40), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.String(length=24), nullable=False),
        sa.Column("act", sa.String(length=48), nullable=False),
        sa.Column("actor", sa.String(length=120), nullable=False),
        sa.Column("target", sa.String(length=200), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=71), nullable=False),
        sa.PrimaryKeyConstraint("chain", "number", name=op.f("pk_audit_entries")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "audit_heads",
        sa.Column("chain", sa.String(length=40), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(length=71), nullable=False),
        sa.PrimaryKeyConstraint("chain", name=op.f("pk_audit_heads")),
    )
    op.add_column("sessions", sa.Column("sealed_seq", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("sessions", sa.Column("sealed_hash", sa.String(71), nullable=False, server_default=sa.text("''")))


def downgrade() -> None:
    """Forget all of it."""
    op.drop_column("sessions", "sealed_hash")
    op.drop_column("sessions", "sealed_seq")
    op.drop_table("audit_heads")
    op.drop_table("audit_entries")
