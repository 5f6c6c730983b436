"""Where the running worker runs what agents ask for, said with every answer where that is not a container."""

from __future__ import annotations

from codesdk.cli.console.printer import Printer
from codesdk.sandbox.port import DOCKER
from codesdk.settings import Settings, runfile


def execution_env(settings: Settings) -> str | None:
    """The word that its events have; None where no worker runs."""
    said = runfile.read(settings.data_dir, "worker")
    found = said.get("execution_env") if said else None
    return str(found) if found else None


def warn_if_not_container(printer: Printer, settings: Settings) -> None:
    """Warn of a worker that runs things on the machine itself."""
    found = execution_env(settings)
    if found not in (None, DOCKER):
        printer.warn(f"{found}: sandboxes here are processes of this machine, not containers.")
