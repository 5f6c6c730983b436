"""the class of a call's tool as its claim saw it

Revision: 0032, after 0031
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Calls that an older version claimed have none; they count as reading only where their tool is still the same."""
    op.add_column("tool_calls", sa.Column("classification", sa.String(16)))


def downgrade() -> None:
    """Undo it."""
    op.drop_column("tool_calls", "classification")
