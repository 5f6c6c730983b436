"""obligations of a run

Revision: 0004, after 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What policy demanded of a call is kept with it, for a worker that takes it up."""
    with op.batch_alter_table("tool_calls", schema=None) as batch_op:
        batch_op.add_column(sa.Column("obligations", sa.Text(), nullable=True))


def downgrade() -> None:
    """Undo it."""
    with op.batch_alter_table("tool_calls", schema=None) as batch_op:
        batch_op.drop_column("obligations")
