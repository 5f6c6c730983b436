"""imported sessions

Revision: 0009, after 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Know an import: its log is here, and the rows that stood beside it are not."""
    op.add_column("sessions", sa.Column("imported_at", sa.Float(), nullable=True))
    # What an older version imported: the principal and the host of that name were made for it, and can do nothing.
    op.execute(
        "UPDATE sessions SET imported_at = closed_at WHERE state = 'closed'"
        " AND principal_id IN (SELECT id FROM principals WHERE name = 'import' AND roles = '[]')"
        " AND host_id IN (SELECT id FROM hosts WHERE name = 'import' AND images = '{}')"
    )


def downgrade() -> None:
    """Forget it."""
    op.drop_column("sessions", "imported_at")
