"""who may open sessions in the mode yolo

Revision: 0018, after 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No tenant may, until an operator of the installation says so."""
    op.add_column("tenants", sa.Column("yolo", sa.Boolean(), nullable=False, server_default=sa.text("false")))


def downgrade() -> None:
    """Undo it. The version before knows no gate, so sessions that this one held at `auto` stay there."""
    op.execute(
        "UPDATE sessions SET permission_mode = 'auto' WHERE permission_mode = 'yolo'"
        " AND tenant_id IN (SELECT id FROM tenants WHERE NOT yolo)"
    )
    op.drop_column("tenants", "yolo")
