"""SQL for the audit trail."""

from __future__ import annotations

import json
from typing import NamedTuple

from sqlalchemy import Connection, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.canonical import canonical_json
from codesdk.domain.ids import SessionId, TenantId
from codesdk.eventlog.audit.entry import AuditRecord, Entry, entry_hash
from codesdk.storage.schema import audit_entries, audit_heads, sessions


class ChainHead(NamedTuple):
    """The last entry of a chain."""

    number: int
    hash: str


class SealState(NamedTuple):
    """How far a session's log is sealed."""

    id: SessionId
    tenant_id: TenantId
    sealed_seq: int
    sealed_hash: str


def append(connection: Connection, deed: AuditRecord) -> None:
    """Append the record to its chain with the next number. Locks the chain until the commit."""
    mine = audit_heads.c.chain == deed.chain
    row = connection.execute(select(audit_heads).where(mine).with_for_update()).one_or_none()
    number, before = (row.number + 1, row.hash) if row else (1, "")
    hash_ = entry_hash(deed, number, before)
    stored = deed.model_dump() | {"number": number, "hash": hash_, "details": canonical_json(deed.details).decode()}
    connection.execute(insert_into(audit_entries), stored)
    if row is None:
        connection.execute(insert_into(audit_heads), {"chain": deed.chain, "number": number, "hash": hash_})
    else:
        connection.execute(update(audit_heads).where(mine).values(number=number, hash=hash_))


def heads(connection: Connection) -> dict[str, ChainHead]:
    """Return the head of every chain, by chain name."""
    rows = connection.execute(select(audit_heads).order_by(audit_heads.c.chain))
    return {row.chain: ChainHead(row.number, row.hash) for row in rows}


def chains(connection: Connection) -> list[str]:
    """List every chain that has an entry or a head."""
    found = connection.execute(select(audit_entries.c.chain).union(select(audit_heads.c.chain)))
    return sorted(found.scalars())


def after(connection: Connection, chain: str, number: int, limit: int) -> list[Entry]:
    """Return the entries after that number, in order."""
    query = select(audit_entries).where(audit_entries.c.chain == chain, audit_entries.c.number > number)
    rows = connection.execute(query.order_by(audit_entries.c.number).limit(limit))
    return [Entry.model_validate({**row._asdict(), "details": json.loads(row.details)}) for row in rows]


def last_of(connection: Connection, chain: str, act: str) -> Entry | None:
    """Return the newest entry of that action, or None."""
    query = select(audit_entries).where(audit_entries.c.chain == chain, audit_entries.c.act == act)
    row = connection.execute(query.order_by(audit_entries.c.number.desc()).limit(1)).one_or_none()
    return Entry.model_validate({**row._asdict(), "details": json.loads(row.details)}) if row else None


def unsealed_sessions(connection: Connection, limit: int, after: str = "") -> list[SealState]:
    """List sessions with unsealed events, ordered by id."""
    query = select(sessions.c.id, sessions.c.tenant_id, sessions.c.sealed_seq, sessions.c.sealed_hash)
    query = query.where(sessions.c.last_seq > sessions.c.sealed_seq, sessions.c.id > after)
    return [SealState(*row) for row in connection.execute(query.order_by(sessions.c.id).limit(limit))]


def advance_seal(connection: Connection, session: SealState, seq: int, hash_: str) -> bool:
    """Record how far the session is sealed. Returns False if another process was first, or the session is gone."""
    where = (sessions.c.id == session.id, sessions.c.sealed_seq == session.sealed_seq)
    done = connection.execute(update(sessions).where(*where).values(sealed_seq=seq, sealed_hash=hash_))
    return done.rowcount == 1


def seal_states(connection: Connection) -> dict[SessionId, SealState]:
    """Return how far each session is sealed, from its own row. Sessions without a seal are left out."""
    query = select(sessions.c.id, sessions.c.tenant_id, sessions.c.sealed_seq, sessions.c.sealed_hash)
    return {row.id: SealState(*row) for row in connection.execute(query.where(sessions.c.sealed_seq > 0))}
