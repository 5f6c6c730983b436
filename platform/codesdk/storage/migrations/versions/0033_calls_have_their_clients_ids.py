"""of a session, one call has an id that a client gave

Revision: 0033, after 0032
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Where an older version took several calls of one id, the first keeps it; their events keep what was said."""
    op.execute(
        """UPDATE tool_calls SET runtime_tool_call_id = NULL
        WHERE runtime_tool_call_id IS NOT NULL AND EXISTS (
            SELECT 1 FROM tool_calls AS earlier
            WHERE earlier.session_id = tool_calls.session_id
            AND earlier.runtime_tool_call_id = tool_calls.runtime_tool_call_id
            AND (earlier.requested_at < tool_calls.requested_at
                OR (earlier.requested_at = tool_calls.requested_at AND earlier.id < tool_calls.id)))"""
    )
    op.create_index(
        "uq_tool_calls_runtime_id",
        "tool_calls",
        ["session_id", "runtime_tool_call_id"],
        unique=True,
        sqlite_where=sa.text("runtime_tool_call_id IS NOT NULL"),
        postgresql_where=sa.text("runtime_tool_call_id IS NOT NULL"),
    )


def downgrade() -> None:
    """Undo it."""
    op.drop_index("uq_tool_calls_runtime_id", "tool_calls")
