"""How many calls were refused, by what they were told: counted where a refusal is written, read by whoever watches over it.

A tenant's count of a code is one row, so it survives restarts and covers every process.
"""

from __future__ import annotations

from codesdk.domain.calls import DenialCode
from codesdk.hosts import HostUnknown
from codesdk.storage.database import Database
from codesdk.tenancy.access import Action, Target, decide_access, require
from codesdk.tenancy.principal import Principal
from codesdk.toolcalls.statistics import store


class DenialCounts:
    """The counts. Safe to use from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def totals(self, caller: Principal) -> dict[DenialCode, int]:
        """Refused calls of all tenants since they are counted, by code; a code that no call was told stands with 0.

        Raises:
            Forbidden: the caller's reach is a tenant's, or its role sees none of this.
        """
        target = Target(tenant_id=caller.tenant_id)
        require(decide_access(caller, Action.METRICS_READ, target), HostUnknown("There are no such figures."))
        with self._database.read() as connection:
            found = store.denial_totals(connection)
        return {code: found.get(code.value, 0) for code in DenialCode}
