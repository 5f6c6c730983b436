"""One exec's egress allowance: its rules, and what is left of its budgets."""

from __future__ import annotations

from dataclasses import dataclass, field

from codesdk.sandbox.egress.connection_attempt import Reason
from codesdk.sandbox.egress.intersection import lower_limits
from codesdk.sandbox.egress.rules import EgressRule, EgressRules, Protocol

Key = tuple[str, int]
ATTEMPTS_PER_CONNECTION = 4
"""Attempts per allowed connection; further ones are reset unread and reported in one record."""


@dataclass
class ExecAllowance:
    """Rules and budgets of one running exec. Used only on the proxy's thread."""

    owner: str
    key: Key
    within: EgressRules
    """The profile's rules, which bound the exec's."""
    rules: EgressRules
    """The exec's own rules."""
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
        """Use the lower of each limit."""
        self._limits = EgressRules(**lower_limits(self.within, self.rules))

    @property
    def idle_s(self) -> float:
        """Idle timeout of a connection in seconds."""
        return self._limits.idle_s

    def find(self, host: str, port: int, protocol: Protocol) -> EgressRule | None:
        """The exec's rule for a destination; None if the exec or its profile doesn't allow it.

        What a rule loosens or adds (`allow_ech`, `inject` …) must be in the profile's rule too.
        """
        outer, inner = self.within.find(host, port, protocol), self.rules.find(host, port, protocol)
        if outer is None or inner is None or not _is_within(inner, outer):
            return None
        return inner

    def attempt(self) -> int | None:
        """Count an attempt and return its number; None beyond the limit of attempts."""
        if self.ended or self.attempts >= ATTEMPTS_PER_CONNECTION * self._limits.connections:
            self.unread += 1
            return None
        self.attempts += 1
        return self.attempts

    def open(self) -> Reason | None:
        """Take a connection slot, to be released with `give_back`; returns the reason if there is none."""
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
        """Release a connection slot."""
        self.open_now -= 1

    def send(self, count: int) -> bool:
        """Count bytes about to be sent; False if they exceed the budget."""
        if self.bytes_up + count > self._limits.bytes_up:
            return False
        self.bytes_up += count
        return True

    def receive(self, count: int) -> bool:
        """Count bytes received; False if they exceed the budget."""
        if self.bytes_down + count > self._limits.bytes_down:
            return False
        self.bytes_down += count
        return True


def _is_within(inner: EgressRule, outer: EgressRule) -> bool:
    """Whether the exec's rule allows nothing beyond the profile's."""
    return (
        inner.allow_ech <= outer.allow_ech
        and inner.allow_missing_sni <= outer.allow_missing_sni
        and inner.upstream == outer.upstream
        and inner.upstream_port == outer.upstream_port
        and set(inner.inject) <= set(outer.inject)
    )
