"""how many calls of each host ended how, and how long they waited and ran

Revision: 0036, after 0035
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The counts begin here: calls of before are in the log alone."""
    op.create_table(
        "call_tallies",
        sa.Column("host_id", sa.String(40), sa.ForeignKey("hosts.id"), primary_key=True),
        sa.Column("series", sa.String(16), primary_key=True),
        sa.Column("label", sa.String(48), primary_key=True),
        sa.Column("upto_ms", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
    )


def downgrade() -> None:
    """Undo it."""
    op.drop_table("call_tallies")
