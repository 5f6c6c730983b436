"""removed sessions

Revision: 0007, after 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What retention took."""
    op.create_table(
        "removed_sessions",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("tenant_id", sa.String(length=40), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.Float(), nullable=False),
        sa.Column("removed_at", sa.Float(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_removed_sessions_tenant_id_tenants")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_removed_sessions")),
    )


def downgrade() -> None:
    """Forget that they were removed."""
    op.drop_table("removed_sessions")
