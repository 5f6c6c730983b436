"""One exec's allowance: what it may reach, and what is left of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from codesdk.sandbox.egress.connection_attempt import Reason
from codesdk.sandbox.egress.rules import EgressRule, EgressRules, Protocol

Key = tuple[str, int]
ATTEMPTS_PER_CONNECTION = 4
"""Attempts beyond this many for each allowed connection are refused unread, and reported as one."""


@dataclass
class ExecAllowance:
    """Rules and budgets of one running exec. Used on the proxy's thread alone."""

    owner: str
    key: Key
    within: EgressRules
    """The profile's: nothing outside is reached, whatever the exec was given."""
    rules: EgressRules
    """The exec's own."""
    attempts: int = 0
    opened: int = 0
    open_now: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    unread: int = 0
    ended: bool = False
    refcount: int = 0
    _limits: EgressRules = field(init=False)

    def __post_init__(self) -> None:
        """Take the tighter of each limit."""
        tighter = {
            name: min(getattr(self.within, name), getattr(self.rules, name))
            for name in ("at_once", "connections", "bytes_up", "bytes_down", "idle_s")
        }
        self._limits = EgressRules(**tighter)

    @property
    def idle_s(self) -> float:
        """Seconds without a byte that end a connection."""
        return self._limits.idle_s

    def find(self, host: str, port: int, protocol: Protocol) -> EgressRule | None:
        """The exec's rule, where the profile allows the same too.

        What a rule loosens or adds (`allow_ech`, `inject` …) holds only if the profile's rule is the same in it.
        """
        outer, inner = self.within.find(host, port, protocol), self.rules.find(host, port, protocol)
        if outer is None or inner is None or not _is_within(inner, outer):
            return None
        return inner

    def attempt(self) -> int | None:
        """Count an attempt; its number, or None when there were far too many."""
        if self.ended or self.attempts >= ATTEMPTS_PER_CONNECTION * self._limits.connections:
            self.unread += 1
            return None
        self.attempts += 1
        return self.attempts

    def open(self) -> Reason | None:
        """Take a connection, to be given back with `give_back`; or why there is none."""
        if self.ended:
            return Reason.EXEC_ENDED
        if self.opened >= self._limits.connections:
            return Reason.TOO_MANY
        if self.open_now >= self._limits.at_once:
            return Reason.TOO_MANY_AT_ONCE
        self.opened += 1
        self.open_now += 1
        return None

    def give_back(self) -> None:
        """A connection ended."""
        self.open_now -= 1

    def send(self, count: int) -> bool:
        """Count bytes that are about to leave; False when they may not."""
        if self.bytes_up + count > self._limits.bytes_up:
            return False
        self.bytes_up += count
        return True

    def receive(self, count: int) -> bool:
        """Count bytes that came; False when they may not be passed on."""
        if self.bytes_down + count > self._limits.bytes_down:
            return False
        self.bytes_down += count
        return True


def _is_within(inner: EgressRule, outer: EgressRule) -> bool:
    """Whether the exec's rule gives nothing beyond the profile's."""
    return (
        inner.allow_ech <= outer.allow_ech
        and inner.allow_missing_sni <= outer.allow_missing_sni
        and inner.upstream == outer.upstream
        and inner.upstream_port == outer.upstream_port
        and set(inner.inject) <= set(outer.inject)
    )
