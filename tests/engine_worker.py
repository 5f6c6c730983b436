"""Starts a worker on an engine that has the image: `engine_worker.py SETTINGS IMAGE [DRAIN_S]`. All else is the
product's.
"""

from __future__ import annotations

import logging
import sys
from contextlib import closing

from codesdk.errors import ExitCode, Fault
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.settings import Settings
from codesdk.worker import __main__ as worker_main
from codesdk.worker.lifecycle import worker


def main(settings: Settings, image: str) -> int:
    logging.basicConfig(level=logging.INFO)
    settings.prepare_data_dir()
    with closing(Engine(settings.docker_host)) as engine:

        def open_sandboxes(_record):
            return DockerSandboxes(settings.instance_id(), engine, workspaces=settings.workspaces_dir())

        try:
            worker_main.serve(settings, open_sandboxes, {"base": image}, engine.identity())
        except Fault as fault:
            sys.stderr.write(f"error: {fault.code}: {fault}\n")
            return fault.exit_code
    return ExitCode.OK


if __name__ == "__main__":
    worker.DRAIN_S = float(sys.argv[3]) if len(sys.argv) > 3 else worker.DRAIN_S
    sys.exit(main(Settings.model_validate_json(sys.argv[1]), sys.argv[2]))
