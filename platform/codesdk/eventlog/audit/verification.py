"""Verifies the audit chains and the logs that are sealed in them."""

from __future__ import annotations

from collections.abc import Iterator

from codesdk.domain.ids import SessionId
from codesdk.domain.model import FrozenModel
from codesdk.eventlog import store as log_store
from codesdk.eventlog.audit import store
from codesdk.eventlog.audit.entry import AuditAction, Entry, entry_hash, event_hash
from codesdk.eventlog.log import PAGE_SIZE
from codesdk.storage.database import Database


class Finding(FrozenModel):
    """One discrepancy."""

    chain: str
    where: str
    """The entry, or the session's events."""
    what: str


class VerificationReport(FrozenModel):
    """The result of a verification."""

    entries: int
    sealed_events: int
    """Number of events hashed again."""
    heads: dict[str, str]
    """The head of each chain as `number:hash`. Stored elsewhere, it later proves that nothing before it has changed."""
    findings: tuple[Finding, ...]


def verify_audit(database: Database, expected: dict[str, str] | None = None) -> VerificationReport:
    """Recompute every hash. `expected`: chain heads that were stored elsewhere, as `number:hash`."""
    entries = 0
    found: list[Finding] = []
    heads: dict[str, str] = {}
    seals: dict[SessionId, list[Entry]] = {}
    with database.read() as connection:
        sealed = store.seal_states(connection)  # read before the chains, so that a seal made meanwhile is no finding
        stored_heads, chains = store.heads(connection), store.chains(connection)
    for chain in chains:
        walk = _ChainWalk(chain, (expected or {}).get(chain))
        head = stored_heads.get(chain, store.ChainHead(0, ""))
        for entry in _chain_entries(database, chain):
            if entry.number <= head.number:  # entries appended meanwhile are checked next time
                found += walk.step(entry)
            _collect_seals(seals, entry)
        entries += walk.number
        if head.number == 0 or (head.number == walk.number and head.hash != walk.hash):
            found.append(Finding(chain=chain, where="the end", what="it is not what the chain's row says"))
        elif head.number > walk.number:
            found.append(
                Finding(chain=chain, where=f"entries {walk.number + 1} to {head.number}", what="they are gone")
            )
        found += walk.missing()
        heads[chain] = f"{walk.number}:{walk.hash}"
    found += [
        Finding(chain=chain, where="the chain", what="it is gone") for chain in (expected or {}) if chain not in heads
    ]
    events, broken = _verify_sessions(database, seals, sealed)
    return VerificationReport(entries=entries, sealed_events=events, heads=heads, findings=(*found, *broken))


class _ChainWalk:
    """Verifies one chain, entry by entry."""

    def __init__(self, chain: str, expected: str | None) -> None:
        self.chain, self.number, self.hash = chain, 0, ""
        number, _, self._expected = (expected or "0:").partition(":")
        self._at = int(number)

    def step(self, entry: Entry) -> Iterator[Finding]:
        if entry.number != self.number + 1:
            yield Finding(chain=self.chain, where=f"entry {self.number + 1}", what="it is gone")
        elif entry_hash(entry, entry.number, self.hash) != entry.hash:
            yield Finding(chain=self.chain, where=f"entry {entry.number}", what="it or its hash was changed")
        self.number, self.hash = entry.number, entry.hash
        if entry.number == self._at and entry.hash != self._expected:
            yield Finding(chain=self.chain, where=f"entry {entry.number}", what="it is not the one that was kept")

    def missing(self) -> Iterator[Finding]:
        if self._at > self.number:
            yield Finding(chain=self.chain, where=f"entry {self._at}", what="it was kept, and is gone")


def _chain_entries(database: Database, chain: str) -> Iterator[Entry]:
    number = 0
    while True:
        with database.read() as connection:
            page = store.after(connection, chain, number, PAGE_SIZE)
        yield from page
        if len(page) < PAGE_SIZE:
            return
        number = page[-1].number


def _collect_seals(seals: dict[SessionId, list[Entry]], entry: Entry) -> None:
    match entry.act:
        case AuditAction.SESSION_SEALED:
            seals.setdefault(SessionId(entry.target), []).append(entry)
        case AuditAction.SESSION_REMOVED:
            seals.pop(SessionId(entry.target), None)


def _verify_sessions(
    database: Database, seals: dict[SessionId, list[Entry]], before: dict[SessionId, store.SealState]
) -> tuple[int, list[Finding]]:
    with database.read() as connection:
        rows = store.seal_states(connection)
    hashed = 0
    found = [
        Finding(chain=rows[session].tenant_id, where=session, what="it is sealed, and no entry says so")
        for session in before
        if session in rows and session not in seals
    ]
    for session, entries in seals.items():
        if session not in rows:
            what = "it was sealed, and is gone or says that it was not; no entry says that it was removed"
            found.append(Finding(chain=entries[0].chain, where=session, what=what))
            continue
        count, broken = _verify_session(database, session, entries)
        hashed += count
        found += broken
    return hashed, found


def _verify_session(database: Database, session: SessionId, seals: list[Entry]) -> tuple[int, list[Finding]]:
    """Verify the events of one session up to its last seal. Reports only the first range that differs."""
    seq, hash_, waiting = 0, "", iter(seals)
    seal = next(waiting)
    while True:
        with database.read() as connection:
            page = log_store.after(connection, session, seq, PAGE_SIZE)
        for row in page:
            if row.seq != seq + 1:
                break
            seq, hash_ = row.seq, event_hash(hash_, row.seq, row.time, row.type, row.body)
            if seq < seal.details["seq"]:
                continue
            if hash_ != seal.details["hash"]:
                return seq, [_seal_finding(session, seal, "they or one of them was changed")]
            following = next(waiting, None)
            if following is None:
                return seq, []
            if following.details["from"] != seq:
                return seq, [
                    _seal_finding(session, following, "they were sealed from another place than the last seal")
                ]
            seal = following
        else:
            if len(page) == PAGE_SIZE:
                continue
        return seq, [_seal_finding(session, seal, f"event {seq + 1} is gone")]


def _seal_finding(session: SessionId, seal: Entry, what: str) -> Finding:
    where = f"{session}, events {seal.details['from'] + 1} to {seal.details['seq']}"
    return Finding(chain=seal.chain, where=where, what=f"{what}; sealed at {seal.time} by entry {seal.number}")
