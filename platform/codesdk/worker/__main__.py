"""`python -m codesdk.worker`: serves this machine's engine, or the machine itself. Configured by `CODESDK_*`."""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from codesdk.bootstrap import Services
from codesdk.domain.execution import ToolExecutionEnv
from codesdk.errors import ExitCode, Fault
from codesdk.provision.engines.docker_engine import Engine as FoundEngine
from codesdk.provision.engines.dockerd import DockerdPaths
from codesdk.provision.images.sandbox_images import ImageStore
from codesdk.provision.system import bubblewrap
from codesdk.registry import Registry
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.egress.secret_files import SecretFiles
from codesdk.sandbox.egress.service import EgressService
from codesdk.sandbox.local.confinement import detect_confinement as find_confinement
from codesdk.sandbox.local.driver import LocalSandboxes, host_image, open_local
from codesdk.sandbox.local.warning_text import local_sandbox_warning
from codesdk.sandbox.port import Sandboxes
from codesdk.sandbox.profiles.loader import DEFAULT, load_profiles
from codesdk.settings import Settings, read_settings, runfile
from codesdk.worker.calls.listener import Listener
from codesdk.worker.lifecycle.shutdown import Shutdown
from codesdk.worker.lifecycle.watchdog import Watchdog
from codesdk.worker.lifecycle.worker import DRAIN_S, SHUTDOWN_S, Worker
from codesdk.worker.sandboxes.egress_accounting import EgressRecorder

_log = logging.getLogger("codesdk.worker")


def main() -> int:
    """Serve until a signal and return the exit code. On failure, the last line on stderr is the reason."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        _serve(read_settings())
    except Fault as fault:
        print(f"error: {' '.join(str(fault).split())}", file=sys.stderr)  # noqa: T201 (read by the supervisor)
        return fault.exit_code
    return ExitCode.OK


def _serve(settings: Settings) -> None:
    settings.prepare_data_dir()
    if settings.is_local:
        _serve_locally(settings)
        return
    host = engine_host(settings)
    images = find_images(settings, FoundEngine(host))
    with closing(Engine(host)) as engine, ExitStack() as opened:

        def open_sandboxes(record: EgressRecorder) -> DockerSandboxes:
            egress = opened.enter_context(closing(make_egress(settings, record)))
            return DockerSandboxes(settings.instance_id(), engine, workspaces=settings.workspaces_dir(), egress=egress)

        serve(settings, open_sandboxes, images, engine.identity())


def _serve_locally(settings: Settings) -> None:
    found = find_confinement("") if settings.local_sandbox == "plain" else bubblewrap.ensure(_log.info)
    for line in local_sandbox_warning(found):
        _log.warning("%s", line)
    # Every image name maps to the machine's own system: local sandboxes have no images.
    wanted = (*load_profiles(settings.profiles_dir).images(), *source_images(settings))
    images = dict.fromkeys(wanted, host_image())
    with ExitStack() as opened:

        def open_sandboxes(record: EgressRecorder) -> LocalSandboxes:
            return open_local(settings, found, egress=opened.enter_context(closing(make_egress(settings, record))))

        serve(settings, open_sandboxes, images, f"machine {platform.node()}")


def serve(
    settings: Settings,
    open_sandboxes: Callable[[EgressRecorder], Sandboxes],
    images: dict[str, str],
    engine: str = "",
) -> None:
    """Run a worker until SIGTERM or SIGINT, then drain. A second signal ends the process at once.

    `open_sandboxes` receives the recorder for egress from the sandboxes.

    Raises:
        HostGone: a newer worker has the host, or the host was declared lost. The supervisor restarts the process.
        Fault: the worker could not start. Nothing is left behind.
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
        worker.heartbeat.on_fenced(shutdown.ask)
        opened.callback(worker.stop)
        worker.start()
        listener = Listener(settings.resolved_redis_url(), worker.host.id, worker.dispatcher.wake)
        opened.callback(listener.close)
        liveness_file = runfile.write(
            settings.data_dir,
            "worker",
            {"pid": os.getpid(), "host": worker.host.id, "execution_env": sandboxes.execution_environment.environment},
        )
        watchdog = Watchdog(services.clock, worker.watched_loops(), liveness_file)
        watchdog.start()
        opened.callback(watchdog.stop)
        worker.on_stop(partial(liveness_file.unlink, missing_ok=True))
        _log.info("serving host %s, generation %d", worker.host.id, worker.host.generation)
        shutdown.wait()
        _log.info("asked to end: no new calls; those that run have %.0f s, the rest is handed back", DRAIN_S)
        shutdown.force_exit_after(SHUTDOWN_S)  # without a signal, if the worker itself asked for the shutdown
        worker.heartbeat.check()


def make_egress(settings: Settings, record: EgressRecorder) -> EgressService:
    """Create the worker's egress proxy with the operator's secrets."""
    return EgressService(
        record, reserve_bytes=record.more, secrets=SecretFiles(settings.resolved_secrets_dir(), record.tenant_of)
    )


def find_images(settings: Settings, engine: FoundEngine) -> dict[str, str]:
    """Image ids by name, for every image that a profile or MCP server names. Builds only the default profile's image.

    Raises:
        ProfileInvalid, AllowlistInvalid: a configuration file is wrong.
        Fault: the default profile has no image and none could be built.
    """
    profiles = load_profiles(settings.profiles_dir)
    shelf = ImageStore(settings, engine)
    default = profiles.named(DEFAULT).image
    images = {default: shelf.provide(default, _log.info)}
    wanted = {*profiles.images(), *source_images(settings)}
    offer = shelf.offer(name for name in sorted(wanted) if name != default)
    for why in offer.missing.values():
        _log.info("an image that profiles name is not offered: %s", why)
    return {**images, **offer.images}


def source_images(settings: Settings) -> tuple[str, ...]:
    """The images named by MCP servers in the registry.

    Raises:
        ManifestInvalid: with file, line and column.
    """
    sources = Registry.load(settings.registry_dir).sources.values()
    return tuple(sorted({source.manifest.image for source in sources if source.manifest.image}))


def engine_host(settings: Settings) -> str:
    """The engine's address: the setting, Docker's own variable, or the standard socket."""
    return settings.docker_host or os.environ.get("DOCKER_HOST", "") or DockerdPaths(Path()).host


if __name__ == "__main__":
    sys.exit(main())
