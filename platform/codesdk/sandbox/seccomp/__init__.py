"""The seccomp profile of sandboxes: an allowlist that states a reason for every group of system calls."""

from codesdk.sandbox.seccomp.filter import document, option

__all__ = ["document", "option"]
