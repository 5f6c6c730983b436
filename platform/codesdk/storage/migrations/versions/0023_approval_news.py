"""news of approvals

Revision: 0023, after 0022
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_ID = sa.String(length=40)


def upgrade() -> None:
    """What happened to a tenant's approvals, numbered in the order of its commits; nothing of before."""
    op.create_table(
        "approval_feeds",
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("epoch", sa.String(length=32), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_approval_feeds_tenant_id_tenants")),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_approval_feeds")),
    )
    op.create_table(
        "approval_news",
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("approval_id", _ID, nullable=False),
        sa.Column("session_id", _ID, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("by", _ID, nullable=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_approval_news_tenant_id_tenants")),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_approval_news_session_id_sessions")),
        sa.ForeignKeyConstraint(["approval_id"], ["approvals.id"], name=op.f("fk_approval_news_approval_id_approvals")),
        sa.PrimaryKeyConstraint("tenant_id", "number", name=op.f("pk_approval_news")),
    )
    op.create_index("ix_approval_news_session", "approval_news", ["session_id"])


def downgrade() -> None:
    """Undo it: readers list again."""
    op.drop_table("approval_news")
    op.drop_table("approval_feeds")
