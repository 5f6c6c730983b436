"""the few calls whose files wait to be looked at are found without the rest

Revision: 0035, after 0034
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A worker asks for them at each look; the index of a host's calls leads to all that wait for people as well.

    `state`: those that ended before they were looked at stay in it; and SQLite prefers the other index to one without.
    """
    op.create_index(
        "ix_tool_calls_preparing",
        "tool_calls",
        ["host_id", "state"],
        sqlite_where=sa.text("preparing IS NOT NULL"),
        postgresql_where=sa.text("preparing IS NOT NULL"),
    )


def downgrade() -> None:
    """Undo it."""
    op.drop_index("ix_tool_calls_preparing", "tool_calls")
