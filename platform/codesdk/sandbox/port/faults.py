"""Faults of sandboxes, engine and images, as opposed to outcomes of what runs inside."""

from __future__ import annotations

from codesdk.errors import ExitCode, Fault


class EngineUnavailable(Fault):
    """The Docker engine does not answer."""

    code = "ENGINE_UNAVAILABLE"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE
    advice_text = "Start it (`systemctl start docker`) or set CODESDK_DOCKER_HOST to one that runs."
    was_sent = True
    """False if the request never reached the runner, so it had no effect."""

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(
            f"The Docker engine at {endpoint} does not answer ({reason}).",
            advice=self.advice_text,
            details={"endpoint": endpoint},
        )


class EngineRefused(Fault):
    """The engine rejected a request."""

    code = "ENGINE_REFUSED"
    status = 502
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, doing: str, reason: str) -> None:
        super().__init__(
            f"The Docker engine refused to {doing}: {reason}",
            advice="`codesdk doctor` checks what the engine offers.",
        )


class ImageMissing(Fault):
    """The sandbox image is not on the engine's host."""

    code = "IMAGE_MISSING"
    status = 503
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, image: str) -> None:
        super().__init__(
            f"The sandbox image {image} is not on the Docker engine.",
            advice="Build ours with `codesdk images build`; add another with `docker pull` or `docker load`.",
            details={"image": image},
        )


class RuntimeMissing(Fault):
    """The engine doesn't have the profile's container runtime."""

    code = "RUNTIME_MISSING"
    status = 503
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, runtime: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"The Docker engine has no runtime `{runtime}`; it has {', '.join(known) or 'none'}.",
            advice=f"Install it, register it under `runtimes` in the engine's daemon.json, and reload the engine "
            f"(`kill -HUP` dockerd); see docs/how-to/use-gvisor.md. CodeSDK uses no other runtime instead of `{runtime}`.",
            details={"runtime": runtime, "known": list(known)},
        )


class ImageRefused(Fault):
    """The image has settings that would affect the runner or outlive the sandbox."""

    code = "IMAGE_REFUSED"
    status = 422
    exit_code = ExitCode.DATA

    def __init__(self, image: str, reasons: tuple[str, ...]) -> None:
        super().__init__(
            f"The image {image} cannot be a sandbox: {'; '.join(reasons)}.",
            advice="Remove these from its Dockerfile and build it again.",
            details={"image": image, "reasons": list(reasons)},
        )


class ImageUnusable(Fault):
    """The runner cannot start in the image."""

    code = "IMAGE_UNUSABLE"
    status = 422
    exit_code = ExitCode.DATA

    def __init__(self, image: str, output: str) -> None:
        super().__init__(
            f"The sandbox's runner did not start in {image}: {output or 'it ended without output'}",
            advice="An image needs Python 3.9 or later with its standard library, as `python3` on PATH.",
            details={"image": image},
        )


class BuildFailed(Fault):
    """An image could not be built."""

    code = "IMAGE_BUILD_FAILED"
    status = 500
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, name: str, reason: str, log_tail: str) -> None:
        super().__init__(
            f"The sandbox image `{name}` could not be built: {reason}",
            advice="The details have the last lines of the build log. A build needs the base image and a Debian mirror.",
            details={"log": log_tail},
        )


class IsolationDrift(Fault):
    """Engine or kernel report other isolation than the spec's; the sandbox was removed."""

    code = "ISOLATION_DRIFT"
    status = 500
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__(
            f"The sandbox was removed because its isolation differs from its spec: {'; '.join(differences)}",
            advice="Something between CodeSDK and the kernel changes containers; `codesdk doctor` names the engine.",
            details={"differences": list(differences)},
        )


class SandboxGone(Fault):
    """The sandbox ended or is unreachable. Whether a running exec had an effect is unknown."""

    code = "SANDBOX_GONE"
    status = 410
    exit_code = ExitCode.UNAVAILABLE
    was_sent = True
    """False if the request never reached the runner, so it had no effect."""

    def __init__(self, owner: str, reason: str) -> None:
        super().__init__(
            f"The sandbox {owner} is gone: {reason}",
            advice="If its workspace still exists, the session's next call starts it again; otherwise open another session.",
            details={"owner": owner},
        )
        self.reason = reason


class EngineRestarted(SandboxGone):
    """The engine was stopped or restarted, and the sandbox's processes ended with it."""

    code = "ENGINE_RESTARTED"

    def __init__(self, owner: str, reason: str) -> None:
        super().__init__(owner, f"the Docker engine was restarted and ended it ({reason})")


class SandboxEnded(Fault):
    """The session's sandbox is gone or being removed."""

    code = "SANDBOX_ENDED"
    status = 409


class StopRefused(Fault):
    """The sandbox cannot be stopped without losing its workspace."""

    code = "STOP_REFUSED"
    status = 409
    exit_code = ExitCode.FAILED

    def __init__(self, owner: str) -> None:
        super().__init__(
            f"The workspace of sandbox {owner} is in memory, and a stop would lose it.",
            advice="Its profile's `workspace_bytes` is at most half of `memory_bytes`; a larger one is kept on disk.",
            details={"owner": owner},
        )


class SandboxPaused(Fault):
    """The sandbox is frozen and doesn't answer. A request already sent may run when it is resumed."""

    code = "SANDBOX_PAUSED"
    status = 409
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, owner: str) -> None:
        super().__init__(
            f"The sandbox {owner} is paused and does not answer.",
            advice="The session's next call resumes it. If someone paused it by hand, run `docker unpause`.",
            details={"owner": owner},
        )


class RunnerSilent(Fault):
    """The runner is alive but didn't answer this request in time. It may still carry it out."""

    code = "RUNNER_SILENT"
    status = 504
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, owner: str, operation: str, waited_s: float) -> None:
        super().__init__(
            f"The sandbox {owner} did not finish `{operation}` within {waited_s:g} s, and still may.",
            advice="Its processes keep running; its disk may be stalled. Check the result before you repeat an operation with side effects.",
            details={"owner": owner, "operation": operation},
        )


class StaleGeneration(Fault):
    """A newer worker has taken the sandbox over."""

    code = "STALE_GENERATION"
    status = 409
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, owner: str, ours: int, newest: int) -> None:
        super().__init__(
            f"Sandbox {owner} obeys a newer worker (generation {newest}; this one has {ours}).",
            advice="This worker must stop using it: another has taken over its host.",
            details={"owner": owner, "ours": ours, "newest": newest},
        )


class AlreadyAcknowledged(Fault):
    """The exec ran and its result was acknowledged; it isn't run again."""

    code = "ALREADY_ACKNOWLEDGED"
    status = 409
    exit_code = ExitCode.SOFTWARE

    def __init__(self, call: str, attempt: int) -> None:
        super().__init__(
            f"Attempt {attempt} of {call} has run and its result was acknowledged.",
            advice="Read its result from the event log.",
        )


class CallCancelled(Fault):
    """The call was cancelled before it had any effect."""

    code = "CANCELLED"
    status = 409
    exit_code = ExitCode.FAILED

    def __init__(self, call: str, attempt: int, *, was_sent: bool = False) -> None:
        """`was_sent`: a read was already sent to the runner; otherwise nothing was started."""
        what = "while it read, and nothing was changed" if was_sent else "before it began"
        super().__init__(f"Attempt {attempt} of {call} was cancelled {what}.")
        self.was_sent = was_sent


class ArchiveRefused(Fault):
    """The tar is unsafe or malformed."""

    code = "ARCHIVE_REFUSED"
    status = 422
    exit_code = ExitCode.DATA

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The archive was not unpacked: {reason}.",
            advice="Pack it again with relative names, regular files, directories and links that stay inside.",
        )


class SnapshotFailed(Fault):
    """A snapshot or restore failed."""

    code = "SNAPSHOT_FAILED"
    retryable = True
    status = 409
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The workspace was not copied: {reason}.",
            advice="Try again when no other snapshot or restore of this sandbox is in progress.",
        )


class RunnerRefused(Fault):
    """The runner rejected a request as malformed: a version mismatch or a bug on one side."""

    code = "RUNNER_REFUSED"
    status = 500
    exit_code = ExitCode.SOFTWARE
