"""how many bytes a tenant moved on its last day

Revision: 0028, after 0027
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nobody has moved anything yet: it is in the logs, and counts from the next connection on."""
    op.add_column("tenants", sa.Column("egress_day", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("tenants", sa.Column("egress_bytes", sa.BigInteger(), nullable=False, server_default=sa.text("0")))


def downgrade() -> None:
    """Undo it."""
    op.drop_column("tenants", "egress_bytes")
    op.drop_column("tenants", "egress_day")
