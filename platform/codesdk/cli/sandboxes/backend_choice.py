"""Chooses containers or local sandboxes as configured, never as a fallback, and warns about the weaker one."""

from __future__ import annotations

from codesdk.cli.commands.options import SandboxKind
from codesdk.provision.system import bubblewrap
from codesdk.provision.system.command import ProgressCallback
from codesdk.sandbox.local.confinement import detect_confinement
from codesdk.sandbox.local.faults import LocalSandboxOff
from codesdk.sandbox.local.warning_text import local_sandbox_warning
from codesdk.settings import Settings

KIND_OF_SETTING = {"on": SandboxKind.LOCAL, "plain": SandboxKind.PLAIN}
"""The kind for each value of CODESDK_LOCAL_SANDBOX."""


def apply_sandbox_choice(settings: Settings, kind: SandboxKind | None, warn: ProgressCallback) -> Settings:
    """Return the settings with the chosen kind; None keeps CODESDK_LOCAL_SANDBOX.

    Raises:
        LocalSandboxOff: a local sandbox was chosen, but the operator forbids it.
        ProvisionFailed, LocalNotSeparated: bubblewrap was chosen, but doesn't work here.
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
