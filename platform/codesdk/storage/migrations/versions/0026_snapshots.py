"""snapshots of workspaces, from which sessions are opened again

Revision: 0026, after 0025
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No session that is there has any."""
    op.add_column("sessions", sa.Column("snapshots", sa.Boolean(), nullable=False, server_default=sa.text("false")))
    op.add_column("sessions", sa.Column("snapshot_artifact", sa.String(40)))
    op.add_column("sessions", sa.Column("snapshot_at", sa.Float()))
    op.add_column("sessions", sa.Column("opened_from", sa.String(40)))


def downgrade() -> None:
    """Undo it. The artifacts stay, as artifacts of their sessions."""
    for column in ("opened_from", "snapshot_at", "snapshot_artifact", "snapshots"):
        op.drop_column("sessions", column)
