"""tickets end with their endpoints

Revision: 0022, after 0021
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A ticket knows the endpoint to which it went, or that it only shows; a delivery counts its replays.

    Tickets of before belong to no endpoint, since their tokens are signed without one: they end with their approvals.
    """
    op.add_column("approval_tickets", sa.Column("endpoint_id", sa.String(40), nullable=True))
    op.add_column(
        "approval_tickets", sa.Column("look_only", sa.Boolean(), nullable=False, server_default=sa.text("false"))
    )
    op.add_column("webhook_deliveries", sa.Column("replays", sa.Integer(), nullable=False, server_default=sa.text("0")))


def downgrade() -> None:
    """Undo it. What the version before would take for a ticket that decides is signed otherwise and opens nothing."""
    op.drop_column("webhook_deliveries", "replays")
    op.drop_column("approval_tickets", "look_only")
    op.drop_column("approval_tickets", "endpoint_id")
