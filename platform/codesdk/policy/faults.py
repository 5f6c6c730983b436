"""Faults of bundles."""

from __future__ import annotations

from codesdk.documents import FileInvalid


class Unevaluable(Exception):
    """A test can't be evaluated for a call; the stricter outcome applies. Never leaves this package."""


class PolicyInvalid(FileInvalid):
    """A file of a policy bundle is invalid; the bundle is not activated."""

    code = "POLICY_INVALID"
