"""webhooks

Revision: 0014, after 0013
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def _id(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.String(length=40), nullable=nullable)


def _float(name: str, *, nullable: bool = False, zero: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Float(), nullable=nullable, server_default=sa.text("0") if zero else None)


def _text(name: str, length: int | None = None, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.String(length=length) if length else sa.Text(), nullable=nullable)


def _refers(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{to}.id"], name=op.f(f"fk_{table}_{column}_{to}"))


def upgrade() -> None:
    """Endpoints, what goes to them, and how far each log has been made into deliveries."""
    op.create_table(
        "webhook_endpoints",
        _id("id"),
        _id("tenant_id"),
        _text("kind", 16),
        _text("target"),
        _text("shown_target", 300),
        _text("types"),
        _id("principal_id", nullable=True),
        _text("description", 200),
        _text("secrets"),
        _float("created_at"),
        _float("disabled_at", nullable=True),
        _text("disabled_reason", nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False, server_default=sa.text("0")),
        _float("not_before", zero=True),
        _float("turn_at", zero=True),
        _float("lease_until", zero=True),
        _text("lease_holder", 64, nullable=True),
        _refers("webhook_endpoints", "tenant_id", "tenants"),
        _refers("webhook_endpoints", "principal_id", "principals"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_endpoints")),
    )
    op.create_index("ix_webhook_endpoints_tenant", "webhook_endpoints", ["tenant_id", "created_at"])
    op.create_table(
        "webhook_deliveries",
        _id("id"),
        _id("endpoint_id"),
        _id("tenant_id"),
        _text("type", 48),
        _id("session_id", nullable=True),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        _text("message"),
        _id("ticket_id", nullable=True),
        _text("state", 16),
        _float("created_at"),
        _float("due_at"),
        _float("until"),
        sa.Column("tries", sa.Integer(), nullable=False),
        _text("attempts"),
        _refers("webhook_deliveries", "endpoint_id", "webhook_endpoints"),
        _refers("webhook_deliveries", "tenant_id", "tenants"),
        _refers("webhook_deliveries", "session_id", "sessions"),
        _refers("webhook_deliveries", "ticket_id", "approval_tickets"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index("ix_webhook_deliveries_due", "webhook_deliveries", ["endpoint_id", "state", "due_at"])
    op.create_index("ix_webhook_deliveries_session", "webhook_deliveries", ["session_id"])
    op.create_index("ix_webhook_deliveries_created", "webhook_deliveries", ["created_at"])
    event = ["endpoint_id", "session_id", "seq", "type"]
    op.create_index("uq_webhook_deliveries_event", "webhook_deliveries", event, unique=True)
    op.create_table(
        "webhook_cursors",
        _id("session_id"),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        _refers("webhook_cursors", "session_id", "sessions"),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_webhook_cursors")),
    )


def downgrade() -> None:
    """Nothing goes out any more; what was to go is forgotten."""
    op.drop_table("webhook_cursors")
    op.drop_table("webhook_deliveries")
    op.drop_table("webhook_endpoints")
