"""previews

Revision: 0019, after 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A call may be tried in a copy of its workspace before anybody is asked about it."""
    with op.batch_alter_table("tool_calls", schema=None) as batch_op:
        batch_op.add_column(sa.Column("preview_tries", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("preview", sa.Text(), nullable=True))


def downgrade() -> None:
    """Undo it. The version before knows no copies: their rows go, and its sweep removes what they owned."""
    op.execute("DELETE FROM sandboxes WHERE state = 'copy'")
    with op.batch_alter_table("tool_calls", schema=None) as batch_op:
        batch_op.drop_column("preview")
        batch_op.drop_column("preview_tries")
