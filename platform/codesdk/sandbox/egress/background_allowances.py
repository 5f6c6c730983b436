"""The allowances of a sandbox's execs that run in the background: from their start until they are forgotten."""

from __future__ import annotations

import threading

from codesdk.sandbox.egress.allowance import ExecAllowance, Key
from codesdk.sandbox.egress.rules import EgressRules
from codesdk.sandbox.egress.service import EgressService


class BackgroundAllowances:
    """Safe to use from any thread. A lock of its own: a removal must not wait for whoever is connecting."""

    def __init__(self, owner: str, egress: EgressService | None) -> None:
        """Owner: the sandbox. Egress: None for one that has none."""
        self._owner = owner
        self._egress = egress
        self._lock = threading.Lock()
        self._allowances: dict[Key, ExecAllowance] = {}

    def grant(self, key: Key, within: EgressRules, rules: EgressRules) -> None:
        """Let an exec out until `end`. A start that is repeated runs nothing twice, and is granted nothing twice."""
        if self._egress is None:
            return
        allowance = self._egress.grant(self._owner, key, within, rules)
        with self._lock:
            older, self._allowances[key] = self._allowances.get(key), allowance
        if older is not None:
            self._egress.end(older)

    def end(self, key: Key) -> None:
        """It is forgotten; nothing happens where it had none."""
        self._end([key])

    def end_all(self) -> None:
        """The sandbox is over."""
        self._end(list(self._allowances))

    def _end(self, keys: list[Key]) -> None:
        with self._lock:
            ended = [self._allowances.pop(key) for key in keys if key in self._allowances]
        if self._egress is not None:
            for allowance in ended:
                self._egress.end(allowance)
