"""A worker whose poller hangs, as `serve` runs it: `hanging.py SETTINGS`."""

from __future__ import annotations

import sys
import threading

from codesdk.sandbox.fake.sandboxes import FakeSandboxes
from codesdk.settings import Settings
from codesdk.worker import __main__ as worker_main
from codesdk.worker.calls.dispatcher import Dispatcher
from codesdk.worker.lifecycle import worker


def hang(_dispatcher):
    threading.Event().wait()


def main():
    settings = Settings.model_validate_json(sys.argv[1]).model_copy(update={"worker_threads": 2, "warm_pool": 0})
    worker.POLLER_TIMEOUT_S = 2.0
    Dispatcher.poll = hang
    worker_main.serve(settings, lambda _record: FakeSandboxes(), {"base": "sha256:" + "0" * 64})


if __name__ == "__main__":
    main()
