"""Host administration for operators: list, drain, activate, declare lost."""

from __future__ import annotations

import logging

from codesdk.domain.clock import Clock
from codesdk.eventlog.audit import INSTALLATION, AuditAction, AuditTrail
from codesdk.hosts import store
from codesdk.hosts.host import HostConflict, HostRecord, HostState, HostUnknown
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.tenancy.access import Action, Target, decide_access, require
from codesdk.tenancy.principal import Principal

_log = logging.getLogger(__name__)


class HostService:
    """Every method checks the caller's access. Thread-safe."""

    def __init__(self, database: Database, writer: Writer, clock: Clock) -> None:
        self._database = database
        self._writer = writer
        self._trail = AuditTrail(clock)

    def listing(self, caller: Principal) -> list[HostRecord]:
        """All hosts by name.

        Raises:
            Forbidden: see `decide_access`.
        """
        _require(caller, Action.HOSTS_READ)
        with self._database.read() as connection:
            return store.with_calls(connection, store.list_hosts(connection))

    def find(self, caller: Principal, wanted: str) -> HostRecord:
        """The host with that name or id.

        Raises:
            Forbidden, HostUnknown.
        """
        _require(caller, Action.HOSTS_READ)
        with self._database.read() as connection:
            found = store.find(connection, wanted)
            if found is None:
                raise _unknown(wanted)
            return store.with_calls(connection, [found])[0]

    def drain(self, caller: Principal, wanted: str) -> HostRecord:
        """Place no more sessions there; existing ones continue. Lasts until `activate`, across restarts of the worker.

        Raises:
            Forbidden, HostUnknown. HostConflict: it is lost.
        """
        return self._change(caller, wanted, HostState.ACTIVE, HostState.DRAINING, AuditAction.HOST_DRAINED)

    def activate(self, caller: Principal, wanted: str) -> HostRecord:
        """Place sessions there again.

        Raises:
            Forbidden, HostUnknown. HostConflict: it is lost, which only its worker can change.
        """
        return self._change(caller, wanted, HostState.DRAINING, HostState.ACTIVE, AuditAction.HOST_ACTIVATED)

    def lose(self, caller: Principal, wanted: str) -> HostRecord:
        """Declare the host lost. Its sessions end within about a second (`sessions.lost_hosts`).

        Its worker can write nothing from now on and exits. A new worker reactivates the host, without sessions.

        Raises:
            Forbidden, HostUnknown: nothing was changed.
        """
        _require(caller, Action.HOSTS_MANAGE)

        def lose(unit: Unit) -> None:
            found = _lock_host(unit, wanted)
            if store.mark_lost(unit.connection, found.id, generation=found.generation) is not None:
                self._trail.record(unit, INSTALLATION, AuditAction.HOST_LOST, actor=caller.id, target=found.name)

        self._writer.run(lose)
        _log.info("%s gave up host %s", caller.id, wanted)
        return self.find(caller, wanted)

    def _change(
        self, caller: Principal, wanted: str, before: HostState, after: HostState, act: AuditAction
    ) -> HostRecord:
        _require(caller, Action.HOSTS_MANAGE)

        def change(unit: Unit) -> None:
            found = _lock_host(unit, wanted)
            if found.state is HostState.LOST:
                raise HostConflict(
                    f"The host {found.name} is lost.", advice="It is active again when a worker serves it again."
                )
            if store.set_state(unit.connection, found.id, before, after):
                self._trail.record(unit, INSTALLATION, act, actor=caller.id, target=found.name)

        self._writer.run(change)
        _log.info("%s: host %s, %s", caller.id, wanted, act.value)
        return self.find(caller, wanted)


def _lock_host(unit: Unit, wanted: str) -> HostRecord:
    found = store.find(unit.connection, wanted)
    if found is None:
        raise _unknown(wanted)
    return (store.lock(unit.connection, found.id) and store.find(unit.connection, found.id)) or found


def _require(caller: Principal, action: Action) -> None:
    # Hosts belong to no tenant: what counts is the reach of the instance, which the access table requires.
    require(decide_access(caller, action, Target(tenant_id=caller.tenant_id)), HostUnknown("There is no such host."))


def _unknown(wanted: str) -> HostUnknown:
    return HostUnknown(f"There is no host {wanted}.", advice="`codesdk hosts list` shows them.")
