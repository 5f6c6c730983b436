"""Containers or local sandboxes: a person's word, never a fallback, and said loudly where it is the weaker one."""

from __future__ import annotations

from codesdk.cli.sandbox_kind import SandboxKind
from codesdk.provision.command import Say
from codesdk.sandbox.local.confinement import find
from codesdk.sandbox.local.faults import LocalSandboxOff
from codesdk.sandbox.local.notice import warning
from codesdk.settings import Settings


def with_sandbox(settings: Settings, kind: SandboxKind | None, warn: Say) -> Settings:
    """The settings with what was chosen; None leaves it to CODESDK_LOCAL_SANDBOX.

    Raises:
        LocalSandboxOff: local ones were asked for, and the operator has ruled them out.
    """
    if kind is None:
        kind = SandboxKind.LOCAL if settings.local_sandbox == "on" else SandboxKind.DOCKER
    if kind is SandboxKind.DOCKER:
        chosen = "" if settings.local_sandbox == "on" else settings.local_sandbox
        return settings.model_copy(update={"local_sandbox": chosen})
    if settings.local_sandbox == "off":
        raise LocalSandboxOff
    for line in warning(find()):
        warn(line)
    return settings.model_copy(update={"local_sandbox": "on"})
