"""which process serves a host, so that no second one does, and one that hangs can be told from others

Revision: 0034, after 0033
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Workers of before said nothing of themselves: nobody is refused or ended because of them."""
    op.add_column("hosts", sa.Column("holder", sa.Text(), nullable=False, server_default=sa.text("''")))


def downgrade() -> None:
    """Undo it."""
    op.drop_column("hosts", "holder")
