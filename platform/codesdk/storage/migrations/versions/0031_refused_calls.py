"""how many calls of each tenant were refused, by what they were told

Revision: 0031, after 0030
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The count begins here: refusals of before are in the log alone."""
    op.create_table(
        "refused_calls",
        sa.Column("tenant_id", sa.String(40), sa.ForeignKey("tenants.id"), primary_key=True),
        sa.Column("code", sa.String(32), primary_key=True),
        sa.Column("calls", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    """Undo it."""
    op.drop_table("refused_calls")
