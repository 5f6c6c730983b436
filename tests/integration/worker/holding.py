"""A worker whose commands never end, until it is killed: `holding.py SETTINGS` prints `ready`, and `running` for each.

`holding.py SETTINGS consumed` stops, once it has printed so, after it used up an approval and before the commit;
`holding.py SETTINGS claimed` stops after that commit and before the command runs.
"""

from __future__ import annotations

import os
import sys
import threading

from codesdk.bootstrap import Services
from codesdk.sandbox.fake.sandboxes import FakeSandboxes, Script
from codesdk.settings import Settings
from codesdk.worker.calls.listener import Listener
from codesdk.worker.lifecycle.worker import Worker


def play(_request):
    os.write(1, b"running\n")
    return Script(stdout=b"half", hold=threading.Event())


def say_and_stop(word):
    os.write(1, f"{word}\n".encode())
    threading.Event().wait()


def stop_at(moment, worker, desk):
    if moment == "claimed":
        worker.dispatcher._run = lambda _: say_and_stop(moment)
    elif moment == "consumed":
        consume = desk.consume

        def consume_and_stop(unit, approval):
            assert consume(unit, approval)
            say_and_stop(moment)

        desk.consume = consume_and_stop


def main():
    settings = Settings.model_validate_json(sys.argv[1]).model_copy(update={"worker_threads": 2, "warm_pool": 0})
    services = Services(settings)
    worker = Worker(services, FakeSandboxes(play), {"base": "sha256:" + "0" * 64})
    stop_at("".join(sys.argv[2:]), worker, services.approvals)
    worker.start()
    Listener(settings.resolved_redis_url(), worker.host.id, worker.dispatcher.wake)
    os.write(1, b"ready\n")
    threading.Event().wait()


if __name__ == "__main__":
    main()
