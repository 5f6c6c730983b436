"""`python -m codesdk.worker`: a worker for this machine's engine, set up by `CODESDK_*` variables."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import closing
from pathlib import Path

from codesdk.errors import ExitCode, Fault
from codesdk.provision import sandbox_image
from codesdk.provision.daemon import DaemonPlaces
from codesdk.provision.engine import Engine as FoundEngine
from codesdk.sandbox.docker_driver import DockerSandboxes
from codesdk.sandbox.engine import Engine
from codesdk.sandbox.profile import Profile
from codesdk.settings import Settings
from codesdk.worker.process import serve

_log = logging.getLogger("codesdk.worker")


def main() -> int:
    """Serve until a signal; returns the exit code. The last line on stderr says why it could not."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        _serve(Settings())
    except Fault as fault:
        print(f"error: {' '.join(str(fault).split())}", file=sys.stderr)  # noqa: T201 (for whoever started it)
        return fault.exit_code
    return ExitCode.OK


def _serve(settings: Settings) -> None:
    settings.prepare_data_dir()
    host = engine_host(settings)
    image = sandbox_image.ensure(FoundEngine(host), _log.info, images=settings.images_dir)
    with closing(Engine(host)) as engine, closing(driver(settings, engine)) as sandboxes:
        serve(settings, sandboxes, {Profile().image: image})


def driver(settings: Settings, engine: Engine) -> DockerSandboxes:
    """The installation's sandboxes on that engine."""
    return DockerSandboxes(settings.instance_id(), engine, workspaces=settings.workspaces_dir())


def engine_host(settings: Settings) -> str:
    """The engine's address: the setting, Docker's own variable, or the standard socket."""
    return settings.docker_host or os.environ.get("DOCKER_HOST", "") or DaemonPlaces(Path(), Path()).host


if __name__ == "__main__":
    sys.exit(main())
