"""bound files

Revision: 0015, after 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """An approval binds the files that its call names: looked at before it is asked for, kept for when it runs."""
    with op.batch_alter_table("tool_calls", schema=None) as batch_op:
        batch_op.add_column(sa.Column("preparing", sa.String(40), nullable=True))
        batch_op.add_column(sa.Column("bound_files", sa.Text(), nullable=True))


def downgrade() -> None:
    """Undo it."""
    with op.batch_alter_table("tool_calls", schema=None) as batch_op:
        batch_op.drop_column("bound_files")
        batch_op.drop_column("preparing")
