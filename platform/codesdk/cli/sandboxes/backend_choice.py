"""Containers or local sandboxes: a person's word, never a fallback, and said loudly where it is the weaker one."""

from __future__ import annotations

from codesdk.cli.commands.sandbox_kind import SandboxKind
from codesdk.provision.system import bubblewrap
from codesdk.provision.system.command import ProgressCallback
from codesdk.sandbox.local.confinement import detect_confinement
from codesdk.sandbox.local.faults import LocalSandboxOff
from codesdk.sandbox.local.warning_text import local_sandbox_warning
from codesdk.settings import Settings

KIND_OF_SETTING = {"on": SandboxKind.LOCAL, "plain": SandboxKind.PLAIN}
"""The kind that a value of CODESDK_LOCAL_SANDBOX stands for."""


def apply_sandbox_choice(settings: Settings, kind: SandboxKind | None, warn: ProgressCallback) -> Settings:
    """The settings with what was chosen; None leaves it to CODESDK_LOCAL_SANDBOX.

    Raises:
        LocalSandboxOff: local ones were asked for, and the operator has ruled them out.
        ProvisionFailed, LocalNotSeparated: they were asked for with a wall, and there can be none here.
    """
    if kind is None:
        kind = KIND_OF_SETTING.get(settings.local_sandbox, SandboxKind.DOCKER)
    if kind is SandboxKind.DOCKER:
        chosen = "" if settings.is_local else settings.local_sandbox
        return settings.model_copy(update={"local_sandbox": chosen})
    if settings.local_sandbox == "off":
        raise LocalSandboxOff
    for line in local_sandbox_warning(detect_confinement("") if kind is SandboxKind.PLAIN else bubblewrap.ensure(warn)):
        warn(line)
    return settings.model_copy(
        update={"local_sandbox": next(word for word, its in KIND_OF_SETTING.items() if its is kind)}
    )
