"""A worker as a process: serves until a signal, then drains."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from codesdk.bootstrap import Services
from codesdk.domain.execution import ToolExecutionEnv
from codesdk.sandbox.port import Sandboxes
from codesdk.settings import Settings, runfile
from codesdk.worker.calls.listener import Listener
from codesdk.worker.lifecycle.shutdown import Shutdown
from codesdk.worker.lifecycle.watchdog import Watchdog
from codesdk.worker.lifecycle.worker import DRAIN_S, SHUTDOWN_S, Worker
from codesdk.worker.sandboxes.egress_record import EgressRecorder

_log = logging.getLogger(__name__)


def serve(
    settings: Settings,
    open_sandboxes: Callable[[EgressRecorder], Sandboxes],
    images: dict[str, str],
    engine: str = "",
) -> None:
    """Run a worker until SIGTERM or SIGINT, then drain; a second one ends it at once.

    `open_sandboxes` gets the recorder of what leaves them.

    Raises:
        HostGone: a newer worker has the host, or it was given up. Whoever started this one starts it again.
        Fault: what kept it from starting; nothing is left behind.
    """
    shutdown = Shutdown(within_s=SHUTDOWN_S)
    with shutdown.listening(), ExitStack() as opened:
        services = Services(settings)
        opened.callback(services.close)
        environment = ToolExecutionEnv.CODESDK_HOST if settings.is_local else ToolExecutionEnv.CODESDK_DOCKER
        sandboxes = open_sandboxes(
            EgressRecorder(services.database, services.writer, services.log, environment, services.quotas)
        )
        opened.callback(sandboxes.close)
        worker = Worker(services, sandboxes, images, engine)
        worker.heartbeat.on_end(shutdown.ask)
        opened.callback(worker.stop)
        worker.start()
        listener = Listener(settings.resolved_redis_url(), worker.host.id, worker.dispatcher.wake)
        opened.callback(listener.close)
        liveness_file = runfile.write(
            settings.data_dir,
            "worker",
            {"pid": os.getpid(), "host": worker.host.id, "execution_env": sandboxes.execution_environment.environment},
        )
        watchdog = Watchdog(services.clock, worker.parts(), liveness_file)
        watchdog.start()
        opened.callback(watchdog.stop)
        worker.announced(partial(liveness_file.unlink, missing_ok=True))
        _log.info("serving host %s, generation %d", worker.host.id, worker.host.generation)
        shutdown.wait()
        _log.info("asked to end: no new calls; those that run have %.0f s, the rest is handed back", DRAIN_S)
        shutdown.force_exit_after(SHUTDOWN_S)  # nobody may have sent a signal: the worker itself may have asked
        worker.heartbeat.check()
