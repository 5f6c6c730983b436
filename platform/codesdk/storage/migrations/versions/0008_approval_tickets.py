"""approval tickets

Revision: 0008, after 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Signed links and tokens that answer an approval once."""
    op.create_table(
        "approval_tickets",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("tenant_id", sa.String(length=40), nullable=False),
        sa.Column("session_id", sa.String(length=40), nullable=False),
        sa.Column("approval_id", sa.String(length=40), nullable=False),
        sa.Column("principal_id", sa.String(length=40), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("used_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["approval_id"], ["approvals.id"], name=op.f("fk_approval_tickets_approval_id_approvals")
        ),
        sa.ForeignKeyConstraint(
            ["principal_id"], ["principals.id"], name=op.f("fk_approval_tickets_principal_id_principals")
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_approval_tickets_session_id_sessions")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_approval_tickets_tenant_id_tenants")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approval_tickets")),
    )
    op.create_index("ix_approval_tickets_session", "approval_tickets", ["session_id"])
    op.create_index("ix_approval_tickets_approval", "approval_tickets", ["approval_id"])


def downgrade() -> None:
    """No link or token that was given out opens anything."""
    op.drop_table("approval_tickets")
