"""lifecycle of sandboxes

Revision: 0002, after 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rows without a session (the warm pool), what a sandbox was made from, and since when it is idle."""
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.alter_column("session_id", existing_type=sa.String(length=40), nullable=True)
        batch_op.add_column(sa.Column("image", sa.String(length=80), nullable=True))
        batch_op.add_column(sa.Column("profile", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("generation", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("ready_at", sa.Float(), nullable=True))
    for column, source in (("image", "image"), ("profile", "profile"), ("ready_at", "created_at")):
        op.execute(
            f"UPDATE sandboxes SET {column} = "  # noqa: S608 (names from the line above)
            f"(SELECT sessions.{source} FROM sessions WHERE sessions.id = sandboxes.session_id)"
        )
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.alter_column("image", existing_type=sa.String(length=80), nullable=False)
        batch_op.alter_column("profile", existing_type=sa.Text(), nullable=False)
    with op.batch_alter_table("tool_calls", schema=None) as batch_op:
        batch_op.create_index("ix_tool_calls_finished", ["session_id", "finished_at"], unique=False)


def downgrade() -> None:
    """Undo it. What the pool made has no owner row any more; the older version's sweep removes it."""
    with op.batch_alter_table("tool_calls", schema=None) as batch_op:
        batch_op.drop_index("ix_tool_calls_finished")
    op.execute("DELETE FROM sandboxes WHERE session_id IS NULL")
    # An older version knows no pause: it finds such a container not running, and closes the row.
    op.execute("UPDATE sandboxes SET state = 'ready' WHERE state = 'paused'")
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.drop_column("ready_at")
        batch_op.drop_column("generation")
        batch_op.drop_column("profile")
        batch_op.drop_column("image")
        batch_op.alter_column("session_id", existing_type=sa.String(length=40), nullable=False)
