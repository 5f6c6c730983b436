"""when a sandbox was last seen to work in the background

Revision: 0003, after 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A sandbox in which a process runs that no call waits for is not idle."""
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("active_at", sa.Float(), nullable=True))


def downgrade() -> None:
    """Undo it: the older version counts from the last call alone."""
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.drop_column("active_at")
