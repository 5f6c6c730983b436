"""Records in the audit which policy is in force, and which files were refused. One process records what all of them find."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from codesdk.domain.clock import Clock
from codesdk.errors import Fault
from codesdk.eventlog.audit import INSTALLATION, AuditAction, AuditTrail, store
from codesdk.policy import ActiveBundles
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer

FILES_ACTOR = "policy-files"
"""Who changes a policy that nobody promoted: whoever can write its files."""
MAX_PROBLEM_CHARACTERS = 2000
"""Characters of an entry's problem; the log has all of it."""
_log = logging.getLogger(__name__)


class PolicyAudit:
    """One entry for each change of what is in force: of the shared layer, and of each tenant's own."""

    def __init__(self, bundles: ActiveBundles, database: Database, writer: Writer, clock: Clock) -> None:
        self._bundles = bundles
        self._database = database
        self._writer = writer
        self._trail = AuditTrail(clock)
        self._known: dict[str, str] = {}
        self._refused: dict[str, str] = {}

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
        self._note_refused(current)

    def _note_refused(self, current: Mapping[str, str]) -> None:
        """Record files that did not take effect, with the version that stays in force in their place."""
        problems = {layer: str(problem)[:MAX_PROBLEM_CHARACTERS] for layer, problem in self._bundles.problems().items()}
        for layer, problem in problems.items():
            if self._refused.get(layer) == problem:
                continue
            chain = INSTALLATION if layer in ("shared", "tenants") else layer
            try:
                self._record_refused(chain, {"problem": problem, "hash": current.get(layer, "")})
            except Fault as fault:
                _log.warning("that policy files of %s were refused could not be kept yet: %s", layer, fault)
                problems = {name: told for name, told in problems.items() if name != layer}
        self._refused = problems

    def _record_refused(self, chain: str, details: dict[str, str]) -> None:
        def work(unit: Unit) -> None:
            # Every process refuses the same files, and one entry is enough.
            kept = store.last_of(unit.connection, chain, AuditAction.POLICY_REFUSED)
            if kept is None or kept.details != details:
                self._trail.record(
                    unit, chain, AuditAction.POLICY_REFUSED, actor=FILES_ACTOR, target="policy", **details
                )

        self._writer.run(work)

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
