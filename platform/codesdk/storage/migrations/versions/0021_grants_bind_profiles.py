"""grants bind the profile

Revision: 0021, after 0020
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

from codesdk.domain.canonical import content_hash
from codesdk.storage.expressions import database_now

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_PROFILES = (("profile", sa.String(40)), ("profile_hash", sa.String(71)))
_GRANTS = sa.table(
    "grants",
    *map(sa.column, ("id", "session_id", "profile", "profile_hash", "ended_at", "ended_why")),
)


def upgrade() -> None:
    """A grant holds under the profile of the session whose approval gave it; the rows are still there to say which."""
    for name, kind in _PROFILES:
        op.add_column("grants", sa.Column(name, kind, nullable=False, server_default=""))
    given = sa.text(
        "SELECT grants.id, sessions.profile FROM grants JOIN approvals ON approvals.id = grants.approval_id"
        " JOIN sessions ON sessions.id = approvals.session_id"
    )
    for grant, stored in op.get_bind().execute(given).all():
        profile = json.loads(stored)
        bound = {"profile": profile.get("name", ""), "profile_hash": content_hash(profile)}
        op.execute(_GRANTS.update().where(_GRANTS.c.id == grant).values(**bound))
    why = "The session in which it was given was removed, so nobody can say under which profile it holds."
    _end(_GRANTS.c.profile_hash == "", why)


def downgrade() -> None:
    """Undo it. The version before looks at no profile: what holds in more than one session would hold under others."""
    _end(_GRANTS.c.session_id.is_(None), "It was bound to a profile, which an older version does not look at.")
    for name, _ in reversed(_PROFILES):
        op.drop_column("grants", name)


def _end(which: sa.ColumnElement[bool], why: str) -> None:
    still = _GRANTS.c.ended_at.is_(None)
    op.execute(_GRANTS.update().where(which, still).values(ended_at=database_now(), ended_why=why))
