"""`codesdk sandbox clear`: removes everything of this installation from the engine."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.stack.shutdown import remove_engine_sandboxes
from codesdk.errors import ExitCode, Fault
from codesdk.settings.process_lock import try_lock


class WorkerServes(Fault):
    """A worker is using the sandboxes."""

    code = "WORKER_SERVES"
    status = 409
    exit_code = ExitCode.UNAVAILABLE


def run(*, data_dir: Path | None, as_json: bool) -> None:
    """Remove containers, volumes and loop devices that are labelled with this installation's id.

    Raises:
        WorkerServes: a worker runs, and would create new ones or lose those in use.
        Fault: the engine doesn't answer, or can't remove one.
    """
    settings = load_settings(data_dir)
    settings.prepare_data_dir()
    held = try_lock(settings.data_dir / "worker.lock")
    if isinstance(held, str):
        raise WorkerServes(f"A worker (process {held}) serves these sandboxes.", advice="Stop it first.")
    with closing(held):
        swept = remove_engine_sandboxes(settings, settings.instance_id())
        remove_engine_sandboxes(settings, settings.discovery_instance_id())  # left by a killed `codesdk tools pin`
    printer = Printer(as_json=as_json)
    if as_json:
        printer.emit({"containers": list(swept.containers), "volumes": list(swept.volumes)})
    else:
        printer.progress(f"Removed {len(swept.containers)} containers and {len(swept.volumes)} volumes")
