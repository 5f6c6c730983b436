"""who logs in with a token of an issuer

Revision: 0027, after 0026
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nobody has logged in yet."""
    op.create_table(
        "logins",
        sa.Column("issuer", sa.String(255), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("tenant_id", sa.String(40), nullable=False),
        sa.Column("principal_id", sa.String(40), nullable=False),
        sa.Column("session_id", sa.String(40)),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("issuer", "subject", "tenant_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
        sa.ForeignKeyConstraint(["principal_id"], ["principals.id"]),
        sa.UniqueConstraint("principal_id"),
    )


def downgrade() -> None:
    """Undo it. The principals stay: calls and sessions name them."""
    op.drop_table("logins")
