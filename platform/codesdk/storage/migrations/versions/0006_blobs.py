"""blobs beneath artifacts

Revision: 0006, after 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A row for each stored content, so that bytes that nothing names can be collected while others write."""
    op.create_table(
        "blobs",
        sa.Column("key", sa.String(length=80), nullable=False),
        sa.Column("content_hash", sa.String(length=71), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("digests", sa.LargeBinary(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("held_until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_blobs")),
    )
    with op.batch_alter_table("blobs", schema=None) as batch_op:
        batch_op.create_index("ix_blobs_hash", ["content_hash"], unique=False)
        batch_op.create_index("ix_blobs_held", ["held_until"], unique=False)
    # Until now the file's name was the hash alone; such a key stays good.
    op.execute(
        "INSERT INTO blobs (key, content_hash, size, state, held_until)"
        " SELECT substr(content_hash, 8), content_hash, max(size), 'stored', 0 FROM artifacts GROUP BY content_hash"
    )
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("blob_key", sa.String(length=80), nullable=True))
    op.execute("UPDATE artifacts SET blob_key = substr(content_hash, 8)")
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.alter_column("blob_key", existing_type=sa.String(length=80), nullable=False)
        batch_op.create_foreign_key(batch_op.f("fk_artifacts_blob_key_blobs"), "blobs", ["blob_key"], ["key"])
        batch_op.create_index("ix_artifacts_session", ["session_id"], unique=False)
        batch_op.create_index("ix_artifacts_blob", ["blob_key"], unique=False)


def downgrade() -> None:
    """Undo it. The older version finds files by their hash alone: what was put since must be renamed by hand."""
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.drop_index("ix_artifacts_blob")
        batch_op.drop_index("ix_artifacts_session")
        batch_op.drop_constraint(batch_op.f("fk_artifacts_blob_key_blobs"), type_="foreignkey")
        batch_op.drop_column("blob_key")
    op.drop_table("blobs")
