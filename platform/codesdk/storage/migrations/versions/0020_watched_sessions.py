"""sessions whose changed files become events, and sandboxes that are stopped

Revision: 0020, after 0019
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No session that is there already asked for it."""
    op.add_column("sessions", sa.Column("watch", sa.Boolean(), nullable=False, server_default=sa.text("false")))


def downgrade() -> None:
    """Undo it. The version before passes the events on as they are, and cannot bring a stopped sandbox back."""
    op.execute(
        "UPDATE sandboxes SET state = 'closing', reason = 'it was stopped, which an older version does not know'"
        " WHERE state IN ('stopping', 'halting', 'stopped', 'starting')"
    )
    op.drop_column("sessions", "watch")
