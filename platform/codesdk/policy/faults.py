"""What can be wrong with a bundle."""

from __future__ import annotations

from codesdk.documents import FileInvalid


class Unevaluable(Exception):
    """A test does not fit a call; the stricter reading then holds. Stays inside this package."""


class PolicyInvalid(FileInvalid):
    """A file of a policy bundle cannot be used; the bundle does not become active."""

    code = "POLICY_INVALID"
