"""Keeps in the audit which policy is in force, whichever process finds it first."""

from __future__ import annotations

import logging

from codesdk.domain.clock import Clock
from codesdk.errors import Fault
from codesdk.eventlog.audit import INSTALLATION, AuditAction, AuditTrail, store
from codesdk.policy import ActiveBundles
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer

FILES_ACTOR = "policy-files"
"""Who changes a policy that nobody promoted: whoever can write its files."""
_log = logging.getLogger(__name__)


class PolicyAudit:
    """One entry for each change of what is in force: of the shared layer, and of each tenant's own."""

    def __init__(self, bundles: ActiveBundles, database: Database, writer: Writer, clock: Clock) -> None:
        self._bundles = bundles
        self._database = database
        self._writer = writer
        self._trail = AuditTrail(clock)
        self._known: dict[str, str] = {}

    def note(self) -> None:
        """Compare with what is kept; what cannot be kept now is at the next look."""
        current = self._bundles.hashes()
        for layer in sorted({*current, *self._known}):
            hash_ = current.get(layer, "")
            if self._known.get(layer) == hash_:
                continue
            try:
                self._record_change(INSTALLATION if layer == "shared" else layer, hash_)
            except Fault as fault:
                _log.warning("that policy %s is in force could not be kept yet: %s", hash_, fault)
            else:
                self._known[layer] = hash_

    def _record_change(self, chain: str, hash_: str) -> None:
        with self._database.read() as connection:
            last = store.last_of(connection, chain, AuditAction.POLICY_IN_FORCE)
        if last is not None and last.details["hash"] == hash_:
            return

        def work(unit: Unit) -> None:
            # Another process may have seen it at the same moment.
            kept = store.last_of(unit.connection, chain, AuditAction.POLICY_IN_FORCE)
            if kept is None or kept.details["hash"] != hash_:
                before = kept.details["hash"] if kept else ""
                known = {"hash": hash_, "before": before}
                actor = _changed_by(unit, chain, hash_)
                self._trail.record(unit, chain, AuditAction.POLICY_IN_FORCE, actor=actor, target="policy", **known)

        self._writer.run(work)


def _changed_by(unit: Unit, chain: str, hash_: str) -> str:
    """The person whose promotion or rollback put it in force; else whoever wrote the files."""
    acts = (AuditAction.POLICY_PROMOTED, AuditAction.POLICY_ROLLED_BACK, AuditAction.POLICY_UNPINNED)
    found = [entry for act in acts if (entry := store.last_of(unit.connection, chain, act)) is not None]
    newest = max(found, key=lambda entry: entry.number, default=None)
    return newest.actor if newest is not None and newest.details["hash"] == hash_ else FILES_ACTOR
