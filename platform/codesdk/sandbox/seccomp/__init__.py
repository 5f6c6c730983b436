"""The seccomp profile of sandboxes: an allowlist in which every group of system calls states its reason."""

from codesdk.sandbox.seccomp.filter import document, option

__all__ = ["document", "option"]
