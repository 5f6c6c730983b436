"""versions of policy

Revision: 0017, after 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bundles are kept with what put them into force, and what a candidate would have decided."""
    op.create_table(
        "policy_versions",
        sa.Column("layer", sa.String(length=40), nullable=False),
        sa.Column("hash", sa.String(length=71), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.Column("made_by", sa.String(length=40), nullable=True),
        sa.ForeignKeyConstraint(["hash"], ["policy_texts.hash"], name=op.f("fk_policy_versions_hash_policy_texts")),
        sa.PrimaryKeyConstraint("layer", "hash", name=op.f("pk_policy_versions")),
    )
    op.create_table(
        "policy_pins",
        sa.Column("layer", sa.String(length=40), nullable=False),
        sa.Column("role", sa.String(length=8), nullable=False),
        sa.Column("hash", sa.String(length=71), nullable=False),
        sa.ForeignKeyConstraint(["hash"], ["policy_texts.hash"], name=op.f("fk_policy_pins_hash_policy_texts")),
        sa.PrimaryKeyConstraint("layer", "role", name=op.f("pk_policy_pins")),
    )
    op.create_table(
        "policy_changes",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("layer", sa.String(length=40), nullable=False),
        sa.Column("action", sa.String(length=12), nullable=False),
        sa.Column("hash", sa.String(length=71), nullable=True),
        sa.Column("before", sa.String(length=71), nullable=True),
        sa.Column("by", sa.String(length=40), nullable=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_changes")),
    )
    with op.batch_alter_table("policy_changes", schema=None) as batch_op:
        batch_op.create_index("ix_policy_changes_layer", ["layer", "at"], unique=False)
    op.create_table(
        "policy_shadow_counts",
        sa.Column("layer", sa.String(length=40), nullable=False),
        sa.Column("hash", sa.String(length=71), nullable=False),
        sa.Column("before", sa.String(length=8), nullable=False),
        sa.Column("after", sa.String(length=8), nullable=False),
        sa.Column("rule", sa.String(length=80), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("last_call", sa.String(length=40), nullable=False),
        sa.Column("last_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("layer", "hash", "before", "after", "rule", name=op.f("pk_policy_shadow_counts")),
    )


def downgrade() -> None:
    """Undo it."""
    op.drop_table("policy_shadow_counts")
    op.drop_table("policy_changes")
    op.drop_table("policy_pins")
    op.drop_table("policy_versions")
