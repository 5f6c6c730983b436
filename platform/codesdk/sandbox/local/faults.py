"""Faults of local sandboxes only."""

from __future__ import annotations

from codesdk.errors import ExitCode, Fault
from codesdk.sandbox.port.faults import ImageMissing

NO_ISOLATION_ADVICE = (
    "Run it as root, or allow unprivileged user namespaces (kernel.unprivileged_userns_clone, AppArmor). To run without "
    "isolation, which leaves this machine unprotected, use `--sandbox plain` (CODESDK_LOCAL_SANDBOX=plain)."
)


class LocalSandboxOff(Fault):
    """The local driver was requested, but the settings don't allow it."""

    code = "LOCAL_SANDBOX_OFF"
    status = 403
    exit_code = ExitCode.NO_PERMISSION

    def __init__(self) -> None:
        super().__init__(
            "Local sandboxes are not enabled: they protect this machine less than containers do.",
            advice="Use a Docker engine, or set CODESDK_LOCAL_SANDBOX=on (or `--sandbox local`) once you have read "
            "docs/how-to/run-without-docker.md.",
        )


class LocalNotSeparated(Fault):
    """Local sandboxes can't be isolated on this machine, and the operator hasn't allowed running without isolation."""

    code = "LOCAL_NOT_SEPARATED"
    status = 503
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, why: str) -> None:
        super().__init__(f"Local sandboxes cannot be isolated from this machine: {why}.", advice=NO_ISOLATION_ADVICE)


class LocalStartFailed(Fault):
    """The runner's processes didn't start."""

    code = "LOCAL_START_FAILED"
    status = 500
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, owner: str, reason: str) -> None:
        super().__init__(
            f"The local sandbox {owner} did not start: {reason or 'it ended without output'}",
            advice="Check the free memory, processes and disk space of this machine.",
        )


class LocalRefused(Fault):
    """The profile requires something that local sandboxes can't provide."""

    code = "LOCAL_REFUSED"
    status = 422
    exit_code = ExitCode.DATA


class NotLocalImage(ImageMissing):
    """The session is pinned to a container image, but local sandboxes only have this machine's system."""

    def __init__(self, image: str) -> None:
        Fault.__init__(
            self,
            f"The image {image} is not this machine's own system, the only one that local sandboxes have.",
            advice="Open a new session, or run the worker on a Docker engine.",
            details={"image": image},
        )


class FreezeFailed(Fault):
    """The kernel didn't freeze or thaw a sandbox's processes."""

    code = "LOCAL_NOT_FROZEN"
    retryable = True
    status = 500
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, owner: str, what: str) -> None:
        super().__init__(
            f"The local sandbox {owner} could not be paused or resumed: {what}.", advice="CodeSDK tries again."
        )


class RemovalFailed(Fault):
    """A part of a sandbox couldn't be removed."""

    code = "LOCAL_REMOVAL_FAILED"
    retryable = True
    status = 500
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, owner: str, what: str) -> None:
        super().__init__(f"The local sandbox {owner} could not be removed: {what}.", advice="CodeSDK tries again.")
