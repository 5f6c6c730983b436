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
    """State of a blob's row. Doomed is final: new bytes with that hash get another key."""

    PENDING = "pending"
    """Being put; bytes may exist already."""
    STORED = "stored"
    """Durable, and referenced by an artifact now or earlier."""
    DAMAGED = "damaged"
    """A read found missing or changed bytes. Putting the same bytes again repairs it."""
    DOOMED = "doomed"
    """Never referenced again; its bytes are being removed."""


class Blob(NamedTuple):
    """A blob's row."""

    key: str
    content_hash: str
    size: int
    digests: bytes | None
    """Of its chunks. None for blobs of older versions, which must be read whole to be verified."""


_FIELDS = tuple(StoredArtifact.model_fields)


# -- artifacts ---------------------------------------------------------------------------------------------------------


def insert(connection: Connection, artifact: StoredArtifact) -> None:
    """Insert the record."""
    connection.execute(insert_into(artifacts), {**artifact.model_dump(), "blob_key": artifact.blob_key})


def find(connection: Connection, tenant: str, artifact: str) -> StoredArtifact | None:
    """Return the tenant's artifact, or None."""
    query = select(artifacts).where(artifacts.c.id == artifact, artifacts.c.tenant_id == tenant)
    row = connection.execute(query).one_or_none()
    return _artifact(row) if row else None


def lock_artifact(connection: Connection, artifact: str, *, to_remove: bool = False) -> bool:
    """Lock the record against removal, or with `to_remove` against such locks. Returns False if it's gone."""
    lock = (
        select(artifacts.c.id)
        .where(artifacts.c.id == artifact)
        .with_for_update(read=not to_remove, key_share=not to_remove)
    )
    return connection.execute(lock).scalar() is not None


def listing(
    connection: Connection, tenant: str, session: str | None, before: tuple[float, str] | None, limit: int
) -> list[StoredArtifact]:
    """List the tenant's records, newest first. `before`: time and id of the previous page's last record."""
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
    """List every artifact of a session."""
    rows = connection.execute(select(artifacts).where(artifacts.c.session_id == session).order_by(artifacts.c.id))
    return [_artifact(row) for row in rows]


def find_content(connection: Connection, session: str, content_hash: str) -> StoredArtifact | None:
    """Return the session's newest artifact with that content, or None."""
    query = select(artifacts).where(artifacts.c.session_id == session, artifacts.c.content_hash == content_hash)
    row = connection.execute(query.order_by(artifacts.c.created_at.desc(), artifacts.c.id.desc()).limit(1)).first()
    return _artifact(row) if row else None


def seeds_open_session(connection: Connection, artifact: str) -> bool:
    """Return whether an open session's workspace starts from it."""
    return bool(
        connection.execute(
            select(exists().where(sessions.c.seed_artifact == artifact, sessions.c.state == "open"))
        ).scalar()
    )


def remove(connection: Connection, artifact: StoredArtifact, hold_s: float) -> bool:
    """Remove the record. Its bytes may be collected `hold_s` seconds later, because someone may be reading them."""
    if connection.execute(delete(artifacts).where(artifacts.c.id == artifact.id)).rowcount != 1:
        return False
    held = update(blobs).where(blobs.c.key == artifact.blob_key).values(held_until=database_now() + hold_s)
    connection.execute(held)
    return True


# -- blobs -------------------------------------------------------------------------------------------------------------


def hold_blob(connection: Connection, blob: Blob, hold_s: float) -> tuple[str, bool]:
    """Keep bytes of that hash from being collected for `hold_s` seconds. Returns the key and whether the bytes exist.

    Inserts a new row under `blob.key` if no durable blob of that hash is known.
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
    """Mark the bytes as durable and referenced. Returns False if they were doomed meanwhile.

    Locks the row first: a transaction that wants to doom it waits, and then sees the record that this unit adds.
    """
    changed = connection.execute(
        update(blobs)
        .where(blobs.c.key == key, blobs.c.state != BlobState.DOOMED.value)
        .values(state=BlobState.STORED.value, held_until=database_now() + hold_s)
    )
    return changed.rowcount == 1


def blob(connection: Connection, key: str) -> Blob | None:
    """Return the blob of that key, or None."""
    query = select(blobs.c.key, blobs.c.content_hash, blobs.c.size, blobs.c.digests).where(blobs.c.key == key)
    row = connection.execute(query).one_or_none()
    return Blob(*row) if row else None


def mark_damaged(connection: Connection, key: str) -> None:
    """Mark the bytes as damaged, so that the next put of the same bytes stores them again."""
    connection.execute(
        update(blobs)
        .where(blobs.c.key == key, blobs.c.state == BlobState.STORED.value)
        .values(state=BlobState.DAMAGED.value)
    )


def unreferenced(connection: Connection, limit: int) -> list[str]:
    """List keys of blobs that no artifact references and that aren't held, and of doomed ones."""
    named = exists().where(artifacts.c.blob_key == blobs.c.key)
    free = (blobs.c.held_until < database_now()) & ~named
    query = select(blobs.c.key).where((blobs.c.state == BlobState.DOOMED.value) | free).limit(limit)
    return list(connection.execute(query).scalars())


def mark_for_deletion(connection: Connection, key: str) -> bool:
    """Doom the blob if no artifact references it and it isn't held. Returns False otherwise.

    The lock is a separate statement. On PostgreSQL the next statement then sees every record committed by the previous
    holder of the lock; a single statement would not.
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
    """Delete the row of a doomed blob after its bytes were removed."""
    connection.execute(delete(blobs).where(blobs.c.key == key, blobs.c.state == BlobState.DOOMED.value))


def existing_keys(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Return those of the keys that have a row, in any state."""
    return set(connection.execute(select(blobs.c.key).where(blobs.c.key.in_(list(keys)))).scalars())


def _artifact(row: Row[Any]) -> StoredArtifact:
    return StoredArtifact.model_validate({name: value for name, value in row._asdict().items() if name in _FIELDS})
