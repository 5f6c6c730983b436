"""SQL for policy: bundle texts by hash, versions, pins, the change record and shadow counts."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Insert, Table, delete, select, update
from sqlalchemy import insert as insert_into
from sqlalchemy.dialects import postgresql, sqlite

from codesdk.domain.decisions import Effect
from codesdk.policy.bundles.bundle_files import BundleTexts
from codesdk.policy.rollout.version_models import ShadowDifference, Version, VersionAction, VersionChange
from codesdk.storage.database import database_now
from codesdk.storage.policy_schema import (
    policy_changes,
    policy_pins,
    policy_shadow_counts,
    policy_texts,
    policy_versions,
)

ACTIVE = "active"
SHADOW = "shadow"
_ACTIVATING = (VersionAction.FILES, VersionAction.PROMOTE, VersionAction.ROLLBACK, VersionAction.UNPIN)


class PinKey(NamedTuple):
    """A layer and the role of its pinned version."""

    layer: str
    role: str
    """`active` or `shadow`."""


def save_text(connection: Connection, bundle_hash: str, sources: BundleTexts) -> None:
    """Store a bundle's texts under its hash, unless they exist."""
    _add_once(connection, policy_texts, {"hash": bundle_hash, "sources": json.dumps(dict(sources))})


def replace_text(connection: Connection, bundle_hash: str, sources: BundleTexts) -> None:
    """Replace a bundle's texts by equivalent ones that include the tests it passed."""
    connection.execute(
        update(policy_texts).where(policy_texts.c.hash == bundle_hash).values(sources=json.dumps(dict(sources)))
    )


def text_of(connection: Connection, bundle_hash: str) -> dict[str, str] | None:
    """Return the texts of a bundle; None if there are none."""
    found = connection.execute(select(policy_texts.c.sources).where(policy_texts.c.hash == bundle_hash)).scalar()
    return dict(json.loads(found)) if found is not None else None


def pins(connection: Connection) -> dict[PinKey, str]:
    """Return the pinned hashes, by layer and role."""
    return {PinKey(row.layer, row.role): row.hash for row in connection.execute(select(policy_pins))}


def pin(connection: Connection, place: PinKey, bundle_hash: str) -> None:
    """Pin a version."""
    unpin(connection, place)
    connection.execute(insert_into(policy_pins).values(**place._asdict(), hash=bundle_hash))


def unpin(connection: Connection, place: PinKey) -> None:
    """Remove a pin."""
    connection.execute(delete(policy_pins).where(policy_pins.c.layer == place.layer, policy_pins.c.role == place.role))


def save_version(connection: Connection, layer: str, bundle_hash: str, name: str, by: str | None) -> None:
    """Add a version of a layer, unless it exists."""
    row = {"layer": layer, "hash": bundle_hash, "name": name, "made_by": by}
    _add_once(connection, policy_versions, {**row, "made_at": database_now()})


def versions_by_prefix(connection: Connection, layer: str, beginning: str) -> list[str]:
    """Return at most three hashes of the layer's versions with this prefix, with or without `sha256:`."""
    whole = f"sha256:{beginning.removeprefix('sha256:')}"
    sought = select(policy_versions.c.hash).where(
        policy_versions.c.layer == layer, policy_versions.c.hash.startswith(whole, autoescape=True)
    )
    return list(connection.execute(sought.order_by(policy_versions.c.hash).limit(3)).scalars())


def versions(connection: Connection, layer: str, limit: int) -> list[Version]:
    """Return the layer's versions, newest first."""
    query = (
        select(policy_versions)
        .where(policy_versions.c.layer == layer)
        .order_by(policy_versions.c.made_at.desc(), policy_versions.c.hash)
        .limit(limit)
    )
    return [
        Version(hash=row.hash, name=row.name, made_at=row.made_at, made_by=row.made_by)
        for row in connection.execute(query)
    ]


def add_change(connection: Connection, id_: str, layer: str, change: VersionChange) -> None:
    """Add an entry to the layer's change record."""
    row = change.model_dump(mode="json", exclude={"at"})
    connection.execute(insert_into(policy_changes).values(id=id_, layer=layer, at=database_now(), **row))


def changes(connection: Connection, layer: str, limit: int) -> list[VersionChange]:
    """Return the layer's change record, newest first."""
    return _changes(connection, layer, limit)


def _changes(connection: Connection, layer: str, limit: int, *which: ColumnElement[bool]) -> list[VersionChange]:
    query = (
        select(policy_changes)
        .where(policy_changes.c.layer == layer, *which)
        .order_by(policy_changes.c.at.desc(), policy_changes.c.id.desc())
        .limit(limit)
    )
    return [
        VersionChange(
            action=VersionAction(row.action),
            hash=row.hash,
            before=row.before,
            by=row.by,
            at=row.at,
            comment=row.comment,
        )
        for row in connection.execute(query)
    ]


def last_change(connection: Connection, layer: str, *actions: VersionAction) -> VersionChange | None:
    """Return the layer's newest entry of these kinds."""
    told = policy_changes.c.action.in_([action.value for action in actions])
    return next(iter(_changes(connection, layer, 1, told)), None)


def last_switch_to(
    connection: Connection, layer: str, bundle_hash: str, *actions: VersionAction
) -> VersionChange | None:
    """Return the newest entry of these kinds that replaced another version by this one; None if there is none."""
    told = policy_changes.c.action.in_([action.value for action in actions])
    other = policy_changes.c.before.is_distinct_from(policy_changes.c.hash)
    same = policy_changes.c.hash == bundle_hash
    return next(iter(_changes(connection, layer, 1, told, same, other)), None)


class RollbackTarget(NamedTuple):
    """The active version and the one before it."""

    now: str
    before: str


def rollback_target(connection: Connection, layer: str) -> RollbackTarget | None:
    """Return the active version and the one to roll back to; None if there is none."""
    now = active_hash(connection, layer)
    # Promoting the active version again changes nothing, so it does not count.
    entry = (
        last_switch_to(connection, layer, now, VersionAction.FILES, VersionAction.PROMOTE, VersionAction.UNPIN)
        if now
        else None
    )
    return RollbackTarget(now, entry.before) if now and entry is not None and entry.before else None


def active_hash(connection: Connection, layer: str) -> str | None:
    """Return the hash of the layer's active version, from the change record."""
    last = last_change(connection, layer, *_ACTIVATING)
    return last.hash if last else None


def layers(connection: Connection) -> list[str]:
    """Return every layer in the change record."""
    return [row.layer for row in connection.execute(select(policy_changes.c.layer).distinct())]


def add_difference(connection: Connection, layer: str, bundle_hash: str, seen: ShadowDifference) -> None:
    """Add to the counts of a candidate."""
    key = {
        "layer": layer,
        "hash": bundle_hash,
        "before": seen.before.value,
        "after": seen.after.value if seen.after else "error",
        "rule": seen.rule,
    }
    table = policy_shadow_counts
    same = [table.c[name] == value for name, value in key.items()]
    told = {"last_call": seen.last_call, "last_at": database_now()}
    changed = connection.execute(update(table).where(*same).values(count=table.c.count + seen.count, **told))
    if not changed.rowcount:
        connection.execute(insert_into(table).values(**key, count=seen.count, **told))


def differences(connection: Connection, layer: str, bundle_hash: str) -> list[ShadowDifference]:
    """Return the counts of a candidate, most frequent first."""
    table = policy_shadow_counts
    query = select(table).where(table.c.layer == layer, table.c.hash == bundle_hash).order_by(table.c.count.desc())
    return [_difference(row) for row in connection.execute(query)]


def _difference(row: Any) -> ShadowDifference:
    after = None if row.after == "error" else Effect(row.after)
    return ShadowDifference(
        before=Effect(row.before),
        after=after,
        rule=row.rule,
        count=row.count,
        last_call=row.last_call,
        last_at=row.last_at,
    )


def _add_once(connection: Connection, table: Table, row: dict[str, Any]) -> None:
    added: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement: Insert = added(table).values(row).on_conflict_do_nothing()
    connection.execute(statement)
