"""tenants and quotas

Revision: 0005, after 0004
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def _columns() -> tuple[tuple[str, sa.Column[Any]], ...]:
    return (
        ("tenants", sa.Column("suspended_at", sa.Float(), nullable=True)),
        ("tenants", sa.Column("limits", sa.Text(), nullable=False, server_default=sa.text("'{}'"))),
        ("tenants", sa.Column("artifact_bytes", sa.BigInteger(), nullable=False, server_default=sa.text("0"))),
        ("principals", sa.Column("kind", sa.String(16), nullable=False, server_default=sa.text("'person'"))),
        ("principals", sa.Column("reach", sa.String(16), nullable=False, server_default=sa.text("'tenant'"))),
        ("principals", sa.Column("disabled_at", sa.Float(), nullable=True)),
        ("api_keys", sa.Column("name", sa.String(120), nullable=False, server_default=sa.text("''"))),
        ("api_keys", sa.Column("prefix", sa.String(24), nullable=False, server_default=sa.text("''"))),
        ("api_keys", sa.Column("expires_at", sa.Float(), nullable=True)),
        ("api_keys", sa.Column("last_used_at", sa.Float(), nullable=True)),
    )


_INDEXES = (
    ("ix_principals_tenant", "principals", ["tenant_id", "created_at"]),
    ("ix_api_keys_principal", "api_keys", ["principal_id"]),
    ("ix_sessions_tenant_state", "sessions", ["tenant_id", "state"]),
    ("ix_tool_calls_tenant_state", "tool_calls", ["tenant_id", "state"]),
)


def upgrade() -> None:
    """Suspension, limits and the bytes in use; kinds, reach and end of principals; names and ends of keys."""
    for table, column in _columns():
        op.add_column(table, column)
    for name, table, columns in _INDEXES:
        op.create_index(name, table, columns)
    op.execute(
        "UPDATE tenants SET artifact_bytes ="
        " (SELECT coalesce(sum(size), 0) FROM artifacts WHERE artifacts.tenant_id = tenants.id)"
    )
    # The operator whom `codesdk up` enrolled was the only one there could be, and so the installation's.
    op.execute(
        "UPDATE principals SET reach = 'instance' WHERE name = 'operator' AND roles LIKE '%\"operator\"%'"
        " AND tenant_id IN (SELECT id FROM tenants WHERE name = 'default')"
    )


def downgrade() -> None:
    """Undo it. Keys that an older version would let in again (suspended, disabled, to expire) are revoked."""
    op.execute(
        "UPDATE api_keys SET revoked_at = coalesce(expires_at, 0) WHERE revoked_at IS NULL AND (expires_at IS NOT NULL"
        " OR principal_id IN (SELECT principals.id FROM principals JOIN tenants ON tenants.id = principals.tenant_id"
        " WHERE principals.disabled_at IS NOT NULL OR tenants.suspended_at IS NOT NULL))"
    )
    for name, table, _ in reversed(_INDEXES):
        op.drop_index(name, table_name=table)
    # Not in batch mode: that would drop the tables that others refer to.
    for table, column in reversed(_columns()):
        op.drop_column(table, column.name)
