"""Which engine runs the sandboxes, or that none does."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from codesdk.settings.group import SettingsGroup


class EngineSettings(SettingsGroup):
    """How the worker reaches its engine."""

    docker_host: str = ""
    """Empty: DOCKER_HOST, else the engine's default socket."""
    docker_tls_ca: Path | None = None
    """The authority (PEM) that the certificate of an engine at `tcp://…` must come from. Unset: `ca.pem` in
    DOCKER_CERT_PATH, where that is set. An engine on another machine is not spoken to without."""
    docker_tls_cert: Path | None = None
    """Our certificate (PEM) for such an engine; likewise `cert.pem`."""
    docker_tls_key: Path | None = None
    """Its key; likewise `key.pem`."""
    local_sandbox: Literal["", "on", "plain", "off"] = ""
    """`on`: sandboxes are processes of this machine behind bubblewrap, not containers, and protect it less. `plain`: without
    bubblewrap either. Empty: containers, unless a command is told otherwise. `off`: no command can be told otherwise."""

    @property
    def is_local(self) -> bool:
        """Whether sandboxes are processes of this machine."""
        return self.local_sandbox in ("on", "plain")
