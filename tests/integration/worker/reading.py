"""A worker over local sandboxes that hangs at the first file it reads, until it is killed: `reading.py SETTINGS`."""

from __future__ import annotations

import os
import sys
import threading

from codesdk.bootstrap import Services
from codesdk.eventlog.hints import LocalHints
from codesdk.jobs import LocalWakeups
from codesdk.sandbox.channel.files import RunnerFiles
from codesdk.sandbox.local.confinement import detect_confinement
from codesdk.sandbox.local.driver import LocalSandboxes
from codesdk.settings import Settings
from codesdk.worker.lifecycle.worker import Worker


def main():
    settings = Settings.model_validate_json(sys.argv[1])
    services = Services(settings, hints=LocalHints(), wakeups=LocalWakeups())
    sandboxes = LocalSandboxes(settings.instance_id(), settings.data_dir / "local", detect_confinement(""))
    read = RunnerFiles.read

    def read_and_stop(*given, **more):
        read(*given, **more)
        os.write(1, b"reading\n")
        threading.Event().wait()

    RunnerFiles.read = read_and_stop
    Worker(services, sandboxes, {"base": sandboxes.image}).start()
    os.write(1, b"ready\n")
    threading.Event().wait()


if __name__ == "__main__":
    main()
