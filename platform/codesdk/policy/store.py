"""Policy's statements: texts of bundles by their hash."""

from __future__ import annotations

import json

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from codesdk.policy.sources import Sources
from codesdk.storage.schema import policy_texts


def keep_text(connection: Connection, bundle_hash: str, sources: Sources) -> None:
    """Keep the texts of a bundle under its hash, where they are not there yet."""
    kept = {"hash": bundle_hash, "sources": json.dumps(dict(sources))}
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(insert(policy_texts).values(kept).on_conflict_do_nothing())


def text_of(connection: Connection, bundle_hash: str) -> dict[str, str] | None:
    """The texts of that bundle; None where there are none."""
    found = connection.execute(select(policy_texts.c.sources).where(policy_texts.c.hash == bundle_hash)).scalar()
    return dict(json.loads(found)) if found is not None else None
