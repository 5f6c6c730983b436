"""What can be wrong with a bundle."""

from __future__ import annotations

from codesdk.documents import FileInvalid


class PolicyInvalid(FileInvalid):
    """A file of a policy bundle cannot be used; the bundle does not become active."""

    code = "POLICY_INVALID"
