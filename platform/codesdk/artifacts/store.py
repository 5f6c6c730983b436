"""SQL for artifacts and their blobs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, exists, select, update
from sqlalchemy import insert as insert_into

from codesdk.artifacts.artifact import StoredArtifact
from codesdk.storage.database import database_now
from codesdk.storage.schema import artifacts, blobs, sessions


class BlobState(StrEnum):
    """Where a blob's row stands. What is doomed stays doomed: new bytes of that hash get another key."""

    PENDING = "pending"
    """Somebody is putting it; there may be bytes already."""
    STORED = "stored"
    """Durable, and named by an artifact, now or once."""
    DAMAGED = "damaged"
    """A reader found it so. Putting the same bytes again mends it."""
    DOOMED = "doomed"
    """No artifact names it, and none ever will: its bytes are being removed."""


class Blob(NamedTuple):
    """What is known of a blob's bytes."""

    key: str
    content_hash: str
    size: int
    digests: bytes | None
    """Of its chunks; None for what an older version kept, which must be read whole to be verified."""


_FIELDS = tuple(StoredArtifact.model_fields)


# -- artifacts ---------------------------------------------------------------------------------------------------------


def insert(connection: Connection, artifact: StoredArtifact) -> None:
    """Add the record."""
    connection.execute(insert_into(artifacts), {**artifact.model_dump(), "blob_key": artifact.blob_key})


def find(connection: Connection, tenant: str, artifact: str) -> StoredArtifact | None:
    """The tenant's artifact of that id; another tenant's does not exist for this one."""
    query = select(artifacts).where(artifacts.c.id == artifact, artifacts.c.tenant_id == tenant)
    row = connection.execute(query).one_or_none()
    return _artifact(row) if row else None


def lock_artifact(connection: Connection, artifact: str, *, to_remove: bool = False) -> bool:
    """Keep the record from being removed until the commit, or with `to_remove` from being kept so. False: it is gone."""
    lock = (
        select(artifacts.c.id)
        .where(artifacts.c.id == artifact)
        .with_for_update(read=not to_remove, key_share=not to_remove)
    )
    return connection.execute(lock).scalar() is not None


def listing(
    connection: Connection, tenant: str, session: str | None, before: tuple[float, str] | None, limit: int
) -> list[StoredArtifact]:
    """The tenant's, newest first; `before`: time and id of the last one of the page before."""
    query = select(artifacts).where(artifacts.c.tenant_id == tenant)
    if session is not None:
        query = query.where(artifacts.c.session_id == session)
    if before is not None:
        moment, last = before
        older = (artifacts.c.created_at < moment) | ((artifacts.c.created_at == moment) & (artifacts.c.id < last))
        query = query.where(older)
    order = (artifacts.c.created_at.desc(), artifacts.c.id.desc())
    return [_artifact(row) for row in connection.execute(query.order_by(*order).limit(limit))]


def of_session(connection: Connection, session: str) -> list[StoredArtifact]:
    """Every artifact of a session."""
    rows = connection.execute(select(artifacts).where(artifacts.c.session_id == session).order_by(artifacts.c.id))
    return [_artifact(row) for row in rows]


def seeds_open_session(connection: Connection, artifact: str) -> bool:
    """Whether an open session's workspace starts from it."""
    return bool(
        connection.execute(
            select(exists().where(sessions.c.seed_artifact == artifact, sessions.c.state == "open"))
        ).scalar()
    )


def remove(connection: Connection, artifact: StoredArtifact, hold_s: float) -> bool:
    """Remove the record; its bytes are a matter of collection, `hold_s` seconds later: some may be reading them."""
    if connection.execute(delete(artifacts).where(artifacts.c.id == artifact.id)).rowcount != 1:
        return False
    held = update(blobs).where(blobs.c.key == artifact.blob_key).values(held_until=database_now() + hold_s)
    connection.execute(held)
    return True


# -- blobs -------------------------------------------------------------------------------------------------------------


def hold_blob(connection: Connection, blob: Blob, hold_s: float) -> tuple[str, bool]:
    """Keep bytes of that hash from being collected for `hold_s` seconds; the key, and whether its bytes are there.

    Where no durable blob of that hash is known, a new row is made under `blob.key`.
    """
    twin = (
        select(blobs.c.key)
        .where(
            blobs.c.content_hash == blob.content_hash,
            blobs.c.state.in_([BlobState.STORED.value, BlobState.DAMAGED.value]),
        )
        .order_by(blobs.c.key)
        .limit(1)
        .scalar_subquery()
    )
    found = connection.execute(
        update(blobs)
        .where(blobs.c.key == twin, blobs.c.state != BlobState.DOOMED.value)
        .values(held_until=database_now() + hold_s)
        .returning(blobs.c.key, blobs.c.state)
    ).first()
    if found is not None:
        return found.key, found.state == BlobState.STORED.value
    row = {**blob._asdict(), "state": BlobState.PENDING.value}
    connection.execute(insert_into(blobs).values(**row, held_until=database_now() + hold_s))
    return blob.key, False


def mark_stored(connection: Connection, key: str, hold_s: float) -> bool:
    """Say that the bytes are durable and named; False: they were given up meanwhile.

    Takes the row's lock first: whoever dooms the row waits, and then sees the record that this unit adds.
    """
    changed = connection.execute(
        update(blobs)
        .where(blobs.c.key == key, blobs.c.state != BlobState.DOOMED.value)
        .values(state=BlobState.STORED.value, held_until=database_now() + hold_s)
    )
    return changed.rowcount == 1


def blob(connection: Connection, key: str) -> Blob | None:
    """The blob of that key."""
    query = select(blobs.c.key, blobs.c.content_hash, blobs.c.size, blobs.c.digests).where(blobs.c.key == key)
    row = connection.execute(query).one_or_none()
    return Blob(*row) if row else None


def mark_damaged(connection: Connection, key: str) -> None:
    """So that the next who puts the same bytes does not rely on these."""
    connection.execute(
        update(blobs)
        .where(blobs.c.key == key, blobs.c.state == BlobState.STORED.value)
        .values(state=BlobState.DAMAGED.value)
    )


def unreferenced(connection: Connection, limit: int) -> list[str]:
    """Keys of blobs that no artifact names and nobody holds, and of those that are doomed already."""
    named = exists().where(artifacts.c.blob_key == blobs.c.key)
    free = (blobs.c.held_until < database_now()) & ~named
    query = select(blobs.c.key).where((blobs.c.state == BlobState.DOOMED.value) | free).limit(limit)
    return list(connection.execute(query).scalars())


def mark_for_deletion(connection: Connection, key: str) -> bool:
    """Give the blob up if nothing names or holds it, for good; False: something does.

    The lock comes in a statement of its own. On PostgreSQL the next one then sees every record that was committed by
    whoever had the lock before; within one statement it would not.
    """
    state = connection.execute(select(blobs.c.state).where(blobs.c.key == key).with_for_update()).scalar()
    if state == BlobState.DOOMED.value:
        return True
    named = exists().where(artifacts.c.blob_key == blobs.c.key)
    changed = connection.execute(
        update(blobs)
        .where(blobs.c.key == key, blobs.c.held_until < database_now(), ~named)
        .values(state=BlobState.DOOMED.value)
    )
    return changed.rowcount == 1


def delete_row(connection: Connection, key: str) -> None:
    """Remove the row of a doomed blob whose bytes are gone."""
    connection.execute(delete(blobs).where(blobs.c.key == key, blobs.c.state == BlobState.DOOMED.value))


def existing_keys(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Those of the keys that have a row, in whatever state."""
    return set(connection.execute(select(blobs.c.key).where(blobs.c.key.in_(list(keys)))).scalars())


def _artifact(row: Row[Any]) -> StoredArtifact:
    return StoredArtifact.model_validate({name: value for name, value in row._asdict().items() if name in _FIELDS})
