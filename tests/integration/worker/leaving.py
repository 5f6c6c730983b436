"""A worker whose commands never end, as `serve` runs it: `leaving.py SETTINGS DRAIN_S`; prints `running` for each."""

from __future__ import annotations

import os
import sys
import threading

from codesdk.sandbox.fake.sandboxes import FakeSandboxes, Script
from codesdk.settings import Settings
from codesdk.worker import __main__ as worker_main
from codesdk.worker.lifecycle import worker


def play(_request):
    os.write(1, b"running\n")
    return Script(stdout=b"half", hold=threading.Event())


def main():
    settings = Settings.model_validate_json(sys.argv[1]).model_copy(update={"worker_threads": 2, "warm_pool": 0})
    worker.DRAIN_S = float(sys.argv[2])
    worker_main.serve(settings, lambda _record: FakeSandboxes(play), {"base": "sha256:" + "0" * 64})


if __name__ == "__main__":
    main()
