"""what is known of a call whose sandbox or worker was lost

Revision: 0030, after 0029
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of calls that were lost before nobody is asked: an older version did not say which those are."""
    op.add_column("sandboxes", sa.Column("runner", sa.String(64)))
    op.add_column("sandboxes", sa.Column("lives", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("tool_calls", sa.Column("behaviour_hash", sa.String(71)))
    op.add_column("tool_calls", sa.Column("life", sa.Integer()))
    op.add_column("tool_calls", sa.Column("doubtful", sa.Boolean(), nullable=False, server_default=sa.text("false")))
    op.create_index(
        "ix_tool_calls_doubtful",
        "tool_calls",
        ["session_id"],
        sqlite_where=sa.text("doubtful = 1"),
        postgresql_where=sa.text("doubtful"),
    )


def downgrade() -> None:
    """Undo it."""
    op.drop_index("ix_tool_calls_doubtful", "tool_calls")
    op.drop_column("tool_calls", "doubtful")
    op.drop_column("tool_calls", "life")
    op.drop_column("tool_calls", "behaviour_hash")
    op.drop_column("sandboxes", "lives")
    op.drop_column("sandboxes", "runner")
