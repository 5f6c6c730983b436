"""rates of rules

Revision: 0012, after 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Calls that a rule with a rate let through are counted."""
    op.create_table(
        "rate_uses",
        sa.Column("rule", sa.String(length=80), nullable=False),
        sa.Column("owner", sa.String(length=40), nullable=False),
        sa.Column("call_id", sa.String(length=40), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("rule", "owner", "call_id", name=op.f("pk_rate_uses")),
    )
    with op.batch_alter_table("rate_uses", schema=None) as batch_op:
        batch_op.create_index("ix_rate_uses_at", ["rule", "owner", "at"], unique=False)


def downgrade() -> None:
    """Undo it."""
    with op.batch_alter_table("rate_uses", schema=None) as batch_op:
        batch_op.drop_index("ix_rate_uses_at")
    op.drop_table("rate_uses")
