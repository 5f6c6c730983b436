"""rules of a session

Revision: 0011, after 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A session may have rules of its own, kept by their hash."""
    op.create_table(
        "policy_texts",
        sa.Column("hash", sa.String(length=71), nullable=False),
        sa.Column("sources", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_policy_texts")),
    )
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("policy_hash", sa.String(length=71), nullable=True))


def downgrade() -> None:
    """Undo it."""
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.drop_column("policy_hash")
    op.drop_table("policy_texts")
