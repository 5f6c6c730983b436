"""Limits on what logs and calls take in the database: a tenant's quota, and each session's rate (ADR 46).

Checked before a call is recorded or started, never afterwards: a call that has started records its output and its end. This
may exceed the quota, and it puts the session into debt: its next call waits until the rate has made up for it.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from codesdk.domain.byte_rate import ByteBuckets, ByteRate
from codesdk.domain.calls import DenialCode
from codesdk.domain.clock import Clock
from codesdk.domain.ids import SessionId, TenantId
from codesdk.domain.quotas import Resource
from codesdk.storage.database import Database
from codesdk.tenancy.quotas import Quota, TenantQuotas

CALL_RESERVE_BYTES = 64 * 1024
"""Kept free for the end of each call in progress: what a command's shown output takes."""
USAGE_S = 1.0
"""Seconds for which a tenant's usage is cached before it is summed up again."""
FULL_RETRY_S = 60.0
"""Seconds after which a refused caller may try again: somebody must remove sessions first, or raise the limit."""
USAGE_SHARE = 50
"""A sum is cached for at least this many times as long as it took, so that summing uses at most a fiftieth of a thread."""


class LogRefusal(NamedTuple):
    """Why a call is not recorded now."""

    code: DenialCode
    message: str
    retry_after_s: float


class _Usage(NamedTuple):
    refusal: LogRefusal | None
    until: float


class LogLimits:
    """The limits of one installation. Safe to use from any thread."""

    def __init__(self, database: Database, quotas: TenantQuotas, rate: ByteRate, clock: Clock) -> None:
        self._database = database
        self._quotas = quotas
        self._clock = clock
        self._sessions = ByteBuckets(rate, clock)
        self._lock = threading.Lock()
        self._tenants: dict[TenantId, _Usage] = {}

    def check_early(self, tenant: TenantId, session: SessionId) -> LogRefusal | None:
        """Why a call of that session is refused, as far as it is known before its transaction. May read the database.

        Raises:
            StorageUnavailable: the usage could not be read.
        """
        return self._check_tenant(tenant) or self._refusal_of_session(self._sessions.left(session))

    def check_session(self, session: SessionId, log_bytes: int) -> LogRefusal | None:
        """Why a call of that session is refused. `log_bytes`: its counter, as its row has it now."""
        return self._refusal_of_session(self._sessions.observe(session, log_bytes))

    def check_claim(self, session: SessionId, log_bytes: int) -> LogRefusal | None:
        """Why a call that was recorded earlier is not started: earlier calls have put the session deep into debt.

        Only if the debt exceeds a whole burst, so that a small one doesn't void a person's approval.
        """
        left = self._sessions.observe(session, log_bytes)
        return self._refusal_of_session(left) if left < -self._sessions.rate.burst else None

    def _check_tenant(self, tenant: TenantId) -> LogRefusal | None:
        now = self._clock.monotonic()
        with self._lock:
            known = self._tenants.get(tenant, _Usage(None, 0.0))
            if now < known.until:
                return known.refusal
            # One thread reads; the others use the last result meanwhile.
            self._tenants[tenant] = known._replace(until=now + USAGE_S)
        refusal = self._read_usage(tenant)
        took_s = self._clock.monotonic() - now
        with self._lock:
            self._tenants[tenant] = _Usage(refusal, now + max(USAGE_S, USAGE_SHARE * took_s))
        return refusal

    def _read_usage(self, tenant: TenantId) -> LogRefusal | None:
        stored = self._find(tenant, Resource.LOG_BYTES)
        if not stored.limit:
            return None
        in_progress = sum(self._find(tenant, each).used for each in (Resource.QUEUED_CALLS, Resource.RUNNING_CALLS))
        asked = CALL_RESERVE_BYTES * (in_progress + 1)
        if stored.used + asked <= stored.limit:
            return None
        full = self._quotas.exceeded(stored, asked)
        return LogRefusal(DenialCode.LOG_QUOTA_EXCEEDED, str(full), FULL_RETRY_S)

    def _find(self, tenant: TenantId, resource: Resource) -> Quota:
        return self._quotas.find(self._database, tenant, resource)

    def _refusal_of_session(self, left: float) -> LogRefusal | None:
        rate = self._sessions.rate
        if not rate.per_s or left >= 0:
            return None
        wait_s = -left / rate.per_s
        message = (
            f"The log and the calls of this session may grow by {rate.per_s} bytes a second, after {rate.burst} at once, "
            f"and have grown faster. Try again in {wait_s:.1f} s, and keep large data in files of the workspace."
        )
        return LogRefusal(DenialCode.LOG_RATE_EXCEEDED, message, wait_s)
