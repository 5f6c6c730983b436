"""Reports where the running worker runs tools, and warns if that is not a container."""

from __future__ import annotations

from codesdk.cli.console.printer import Printer
from codesdk.sandbox.port import DOCKER
from codesdk.settings import Settings, runfile


def execution_env(settings: Settings) -> str | None:
    """Return the execution environment as in events; None if no worker runs."""
    said = runfile.read(settings.data_dir, "worker")
    found = said.get("execution_env") if said else None
    return str(found) if found else None


def warn_if_not_container(printer: Printer, settings: Settings) -> None:
    """Warn if the worker runs tools as processes of this machine."""
    found = execution_env(settings)
    if found not in (None, DOCKER):
        printer.warn(f"{found}: sandboxes here are processes of this machine, not containers.")
