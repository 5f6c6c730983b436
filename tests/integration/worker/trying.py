"""A worker that is killed during a dry run: `trying.py SETTINGS ENGINE IMAGE MOMENT` prints `ready`, then dies there.

Moments: `row` (the copy's row is written, its container not requested), `made` (the container exists), `taken` (the
snapshot exists), `ran` (the call has run), `removed` (the container is removed, its row is not).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import closing

from codesdk.bootstrap import Services
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.settings import Settings
from codesdk.worker.deferred_approvals import dry_runs
from codesdk.worker.lifecycle import worker as process
from codesdk.worker.lifecycle.worker import Worker
from codesdk.worker.sandboxes.throwaway import ThrowawaySandboxes
from codesdk.worker.workspaces.workspace_copy import SnapshotFile


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Dying:
    """Sandboxes as the copies have them."""

    def __init__(self, sandboxes, moment):
        self._sandboxes = sandboxes
        self._moment = moment

    def open(self, spec):
        if self._moment == "row":
            die()
        made = self._sandboxes.open(spec)
        if self._moment == "made":
            die()
        return made

    def destroy(self, owner):
        self._sandboxes.destroy(owner)
        if self._moment == "removed":
            die()


def after(function):
    def call(*given, **more):
        found = function(*given, **more)
        die()
        return found

    return call


def arm(moment):
    process.ThrowawaySandboxes = lambda *, sandboxes, **more: ThrowawaySandboxes(
        sandboxes=Dying(sandboxes, moment), **more
    )
    if moment == "taken":
        SnapshotFile.take = after(SnapshotFile.take)
    elif moment == "ran":
        dry_runs.dry_run = after(dry_runs.dry_run)


def main(given, engine, image, moment):
    arm(moment)
    settings = Settings.model_validate_json(given).model_copy(update={"worker_threads": 2, "warm_pool": 0})
    services = Services(settings)
    with closing(Engine(engine)) as docker:
        worker = Worker(services, DockerSandboxes(settings.instance_id(), docker), {"base": image})
        worker.start()
        os.write(1, b"ready\n")
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
