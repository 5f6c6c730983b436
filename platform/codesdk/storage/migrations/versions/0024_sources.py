"""other people's MCP servers

Revision: 0024, after 0023
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Whose server runs in a sandbox, and which tools are not what was accepted."""
    op.add_column("sandboxes", sa.Column("source", sa.String(length=40)))
    op.add_column("sandboxes", sa.Column("serves", sa.String(length=40)))
    op.create_table(
        "source_changes",
        sa.Column("source", sa.String(length=40), nullable=False),
        sa.Column("tool", sa.String(length=200), nullable=False),
        sa.Column("pinned", sa.String(length=71), nullable=False),
        sa.Column("seen", sa.String(length=71), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("source", "tool", name=op.f("pk_source_changes")),
    )


def downgrade() -> None:
    """Undo it. The version before takes the sandboxes of servers for its pool's, and removes them."""
    op.drop_table("source_changes")
    op.drop_column("sandboxes", "serves")
    op.drop_column("sandboxes", "source")
