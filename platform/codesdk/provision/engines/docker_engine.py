"""Finds a running Docker engine, or installs and starts one and stops it afterwards."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codesdk.provision.engines import dockerd
from codesdk.provision.engines.dockerd import DockerdPaths
from codesdk.provision.engines.endpoint import EndpointState, Ping, ping
from codesdk.provision.servers.shared_server import ServerHandle, ServerUse, SharedServer
from codesdk.provision.system import debian
from codesdk.provision.system.command import ProgressCallback, ProvisionFailed, Root, root, state_dir, which
from codesdk.provision.system.process_identity import ProcessIdentity

PACKAGES = ("docker.io",)
"""Depends on containerd, runc, iptables (for the bridge network) and tini (`--init`) in bookworm and trixie."""
CLIENT_PACKAGE = "docker-cli"
"""Since trixie the docker command is in its own package."""
STARTING_S = 30.0
"""Seconds to wait for an engine that accepts connections but is still starting."""
HOST_VARIABLES = ("CODESDK_DOCKER_HOST", "DOCKER_HOST")
USER_SOCKETS = (
    ("XDG_RUNTIME_DIR", "docker.sock"),
    ("HOME", ".docker/run/docker.sock"),
    ("HOME", ".docker/desktop/docker.sock"),
)
"""Sockets of rootless Docker and Docker Desktop, relative to the directory in the variable."""


class EngineMissing(ProvisionFailed):
    """No Docker engine answers, and none can be installed or started on this machine."""

    code = "ENGINE_MISSING"


class Engine:
    """A running engine."""

    def __init__(self, host: str, *, started_by_us: bool = False, share: ServerUse | None = None) -> None:
        self.host = host
        """Address for clients, in the format of DOCKER_HOST."""
        self.started_by_us = started_by_us
        """Whether CodeSDK started it, in this process or in an earlier one that was killed."""
        self._share = share

    def stop(self) -> bool:
        """Stop the engine if CodeSDK started it and no other CodeSDK process uses it; return whether it was stopped.

        Idempotent.

        Raises:
            ProvisionFailed: it doesn't exit, or root is no longer available.
        """
        share, self._share = self._share, None
        return share.release(_stop) if share is not None else False


@dataclass(frozen=True)
class ManagedEngine:
    """The paths of this machine's engine, and the record of who started it and who uses it."""

    shares: SharedServer
    places: DockerdPaths


def managed_engine(directory: Path) -> ManagedEngine:
    """Return the engine at the standard paths, with its record in `directory`."""
    return ManagedEngine(SharedServer(directory, "engine"), DockerdPaths(directory / "dockerd.log"))


@dataclass(frozen=True)
class EngineCandidate:
    """An address that was tried, and the result."""

    host: str
    ping: Ping
    variable: str = ""
    """The environment variable that set the address; empty if none did."""


def with_docker_host(docker_host: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the engine of the settings, if they name one."""
    return {**environ, **({"CODESDK_DOCKER_HOST": docker_host} if docker_host else {})}


def find(environ: Mapping[str, str], standard: str) -> EngineCandidate:
    """Find the configured engine, or else the first that answers: standard socket, then the user's sockets.

    If none answers, returns the result for the standard socket.
    """
    chosen = next((name for name in HOST_VARIABLES if environ.get(name)), None)
    if chosen is not None:
        return EngineCandidate(environ[chosen], ping(environ[chosen]), chosen)
    first = EngineCandidate(standard, ping(standard))
    if first.ping.answer is EndpointState.SILENT:  # systemd's socket accepts connections before the engine is up
        first = EngineCandidate(standard, ping(standard, timeout_s=STARTING_S))
    if first.ping.answer is EndpointState.ENGINE:
        return first
    others = (f"unix://{environ[name]}/{rest}" for name, rest in USER_SOCKETS if environ.get(name))
    tried = (EngineCandidate(host, ping(host)) for host in others)
    return next((found for found in tried if found.ping.answer is EndpointState.ENGINE), first)


def ensure(
    progress: ProgressCallback,
    *,
    docker_host: str = "",
    managed: ManagedEngine | None = None,
    environ: Mapping[str, str] | None = None,
) -> Engine:
    """Return a running engine: the configured one, the standard one, or one installed and started now.

    Leaves a running engine unchanged. Installation requires Debian or Ubuntu, and root or passwordless sudo.

    Args:
        progress: receives a line before anything is installed or started.
        docker_host: the engine of the settings; empty: that of the environment.
        managed: the managed engine; None for the current user's.
        environ: None for the process's environment. `CODESDK_DOCKER_HOST` and `DOCKER_HOST` select an engine.

    Raises:
        EngineMissing: none answers and none can be started; the advice is the exact next step.
        ProvisionFailed: the installation or the start failed.
    """
    managed = managed or managed_engine(state_dir())
    variables = with_docker_host(docker_host, os.environ if environ is None else environ)
    with managed.shares.lock():
        found = find(variables, managed.places.host)
        if found.ping.answer is EndpointState.ENGINE:
            started_by_us = found.host == managed.places.host and managed.shares.read() is not None
            share = managed.shares.register() if started_by_us else None
            return Engine(found.host, started_by_us=started_by_us, share=share)
        if found.variable:
            raise EngineMissing(
                f"No Docker engine answers at {found.host} ({found.variable}): {found.ping.detail}.",
                advice=f"Start that engine, or unset {found.variable} to use this machine's own.",
            )
        if found.ping.answer is EndpointState.FORBIDDEN:
            raise _permission_fault(found.host)
        if found.ping.answer is EndpointState.SILENT:
            raise EngineMissing(
                f"A Docker engine listens at {found.host} but does not answer ({found.ping.detail}).",
                advice="Wait until it has started, or restart it: sudo systemctl restart docker.",
            )
        way = _root_to_start(found)
        _install(progress)
        _start(managed, way, progress)
        return Engine(found.host, started_by_us=True, share=managed.shares.register())


def _permission_fault(host: str) -> EngineMissing:
    user = getpass.getuser()
    return EngineMissing(
        f"A Docker engine listens at {host}, but user {user} may not use it.",
        advice=f"Run: sudo usermod -aG docker {user} && newgrp docker; then run this again.",
    )


def _root_to_start(found: EngineCandidate) -> Root:
    """Return root access if an engine can be started here."""
    installed = which("dockerd") is not None
    what = f"No Docker engine answers at {found.host} ({found.ping.detail})"
    if not installed and not debian.release().has_apt:
        raise EngineMissing(
            f"{what}, and this is not Debian or Ubuntu.",
            advice="Install Docker (https://docs.docker.com/engine/install/), start it, and run this again.",
        )
    way = root()
    if way is None:
        command = "sudo systemctl start docker" if installed else debian.install_command(PACKAGES)
        raise EngineMissing(f"{what}, and root is needed to start one.", advice=f"Run: {command}; then run this again.")
    return way


def _install(progress: ProgressCallback) -> None:
    if which("dockerd") is None:
        debian.install(PACKAGES, "No Docker engine is installed", progress)
    if which("docker") is None:
        debian.install((CLIENT_PACKAGE,), "The docker command is missing", progress)


def _start(managed: ManagedEngine, way: Root, progress: ProgressCallback) -> None:
    places = managed.places
    if dockerd.systemd_runs():
        progress("Starting the Docker engine (systemctl start docker); it is stopped again at the end")
        dockerd.systemd_start(way)
        managed.shares.write("systemd")
    else:
        progress(f"Starting the Docker engine (dockerd, log {places.log}); it is stopped again at the end")
        managed.shares.write(dockerd.start(places, way))
    if ping(places.host).answer is EndpointState.FORBIDDEN:
        # Only the new engine's socket, which disappears with it: docker group membership would need a new login.
        progress(f"Giving {getpass.getuser()} the socket of the engine just started")
        way.run("chown", getpass.getuser(), str(places.socket), deadline_s=10)
    tried = ping(places.host)
    if tried.answer is not EndpointState.ENGINE:
        raise ProvisionFailed(
            f"The Docker engine was started but does not answer: {tried.detail}.", advice=f"Its log is {places.log}."
        )


def _stop(started: ServerHandle) -> None:
    way = root()
    if way is None:
        how = f"kill {started.pid}" if isinstance(started, ProcessIdentity) else "systemctl stop docker.socket docker"
        raise ProvisionFailed("Stopping the Docker engine that was started needs root.", advice=f"Run: sudo {how}")
    if isinstance(started, ProcessIdentity):
        dockerd.stop(started, way)
    else:
        dockerd.systemd_stop(way)


def docker_command() -> str:
    """Return the path of the docker client.

    Raises:
        EngineMissing: there is none on PATH.
    """
    docker = which("docker")
    if docker is None:
        raise EngineMissing(
            "The docker command is missing.", advice="Install it (Debian: apt-get install docker-cli, or docker.io)."
        )
    return docker
