"""`codesdk sandbox clear`: nothing of this installation stays on the engine."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from codesdk.cli.places import settings_of
from codesdk.cli.stack.sessions import sweep_engine
from codesdk.cli.voice import Voice
from codesdk.errors import ExitCode, Fault
from codesdk.settings.hold import hold


class WorkerServes(Fault):
    """A worker has the sandboxes."""

    code = "WORKER_SERVES"
    status = 409
    exit_code = ExitCode.UNAVAILABLE


def run(*, data_dir: Path | None, as_json: bool) -> None:
    """Remove containers, volumes and loop devices that carry this installation's id.

    Raises:
        WorkerServes: a worker would make them anew, or lose them under its hands.
        Fault: the engine does not answer, or keeps one.
    """
    settings = settings_of(data_dir)
    settings.prepare_data_dir()
    held = hold(settings.data_dir / "worker.lock")
    if isinstance(held, str):
        raise WorkerServes(f"A worker (process {held}) serves these sandboxes.", advice="Stop it first.")
    with closing(held):
        swept = sweep_engine(settings, settings.instance_id())
        sweep_engine(settings, settings.asking_instance())  # of a `codesdk tools pin` that was killed
    voice = Voice(as_json=as_json)
    if as_json:
        voice.give({"containers": list(swept.containers), "volumes": list(swept.volumes)})
    else:
        voice.say(f"Removed {len(swept.containers)} containers and {len(swept.volumes)} volumes")
