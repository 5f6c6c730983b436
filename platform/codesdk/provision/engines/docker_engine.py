"""A Docker engine: the one that answers, or one that is installed and started here and stopped again afterwards."""

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
"""Depends on containerd, runc, iptables (the engine's bridge) and tini (`--init`) in bookworm and trixie."""
CLIENT_PACKAGE = "docker-cli"
"""Since trixie the docker command is a package of its own."""
STARTING_S = 30.0
"""Seconds for an engine that listens already and is still starting."""
HOST_VARIABLES = ("CODESDK_DOCKER_HOST", "DOCKER_HOST")
USER_SOCKETS = (
    ("XDG_RUNTIME_DIR", "docker.sock"),
    ("HOME", ".docker/run/docker.sock"),
    ("HOME", ".docker/desktop/docker.sock"),
)
"""Where rootless Docker and Docker Desktop listen, below the directory that the variable names."""


class EngineMissing(ProvisionFailed):
    """No Docker engine answers, and none can be installed or started here."""

    code = "ENGINE_MISSING"


class Engine:
    """An engine that answers."""

    def __init__(self, host: str, *, started_by_us: bool = False, share: ServerUse | None = None) -> None:
        self.host = host
        """Address for clients, as in DOCKER_HOST."""
        self.started_by_us = started_by_us
        """Whether CodeSDK started it: in this process or in another that may have been killed since."""
        self._share = share

    def stop(self) -> bool:
        """Stop it if CodeSDK started it and no other CodeSDK process uses it; True where it was stopped.

        Doing it twice is no error.

        Raises:
            ProvisionFailed: it does not end, or root is gone.
        """
        share, self._share = self._share, None
        return share.release(_stop) if share is not None else False

    def leave(self) -> None:
        """Let it run from now on as if it had always been here: nothing of ours will stop it."""
        share, self._share = self._share, None
        if share is not None:
            share.forget()
        self.started_by_us = False


@dataclass(frozen=True)
class ManagedEngine:
    """Where the engine of this machine is, and where we note who started it and who uses it."""

    shares: SharedServer
    places: DockerdPaths


def managed_engine(directory: Path) -> ManagedEngine:
    """A desk that keeps its files in `directory`, for the engine at the standard places."""
    return ManagedEngine(SharedServer(directory, "engine"), DockerdPaths(directory / "dockerd.log"))


@dataclass(frozen=True)
class EngineCandidate:
    """Where an engine was looked for, and what answered there."""

    host: str
    ping: Ping
    variable: str = ""
    """The environment variable that chose the address; empty where nobody chose."""


def find(environ: Mapping[str, str], standard: str) -> EngineCandidate:
    """The engine that someone chose; else the first that answers of the standard socket and those of a user's own.

    Where none answers, this tells of the standard socket.
    """
    chosen = next((name for name in HOST_VARIABLES if environ.get(name)), None)
    if chosen is not None:
        return EngineCandidate(environ[chosen], ping(environ[chosen]), chosen)
    first = EngineCandidate(standard, ping(standard))
    if first.ping.answer is EndpointState.SILENT:  # systemd's socket answers for an engine that it is only now starting
        first = EngineCandidate(standard, ping(standard, timeout_s=STARTING_S))
    if first.ping.answer is EndpointState.ENGINE:
        return first
    others = (f"unix://{environ[name]}/{rest}" for name, rest in USER_SOCKETS if environ.get(name))
    tried = (EngineCandidate(host, ping(host)) for host in others)
    return next((found for found in tried if found.ping.answer is EndpointState.ENGINE), first)


def ensure(
    progress: ProgressCallback, *, desk: ManagedEngine | None = None, environ: Mapping[str, str] | None = None
) -> Engine:
    """An engine that answers: the chosen one, the standard one, or one installed and started now.

    A running engine is used as it is. Installing needs Debian or Ubuntu and root (or sudo without a password).

    Args:
        progress: told before anything is installed or started.
        desk: None for this user's own.
        environ: None for the process's; `CODESDK_DOCKER_HOST` and `DOCKER_HOST` choose an engine.

    Raises:
        EngineMissing: none answers and none can be had here; the advice is the exact next step.
        ProvisionFailed: installing or starting failed.
    """
    desk = desk or managed_engine(state_dir())
    with desk.shares.alone():
        found = find(os.environ if environ is None else environ, desk.places.host)
        if found.ping.answer is EndpointState.ENGINE:
            ours = found.host == desk.places.host and desk.shares.read() is not None
            return Engine(found.host, started_by_us=ours, share=desk.shares.join() if ours else None)
        if found.variable:
            raise EngineMissing(
                f"No Docker engine answers at {found.host} ({found.variable}): {found.ping.detail}.",
                advice=f"Start that engine, or unset {found.variable} to use this machine's own.",
            )
        if found.ping.answer is EndpointState.FORBIDDEN:
            raise _permission_fault(found.host)
        if found.ping.answer is EndpointState.SILENT:
            raise EngineMissing(
                f"A Docker engine listens at {found.host} and does not answer ({found.ping.detail}).",
                advice="Wait until it has started, or restart it: sudo systemctl restart docker.",
            )
        way = _root_to_start(found)
        _install(progress)
        _start(desk, way, progress)
        return Engine(found.host, started_by_us=True, share=desk.shares.join())


def _permission_fault(host: str) -> EngineMissing:
    user = getpass.getuser()
    return EngineMissing(
        f"A Docker engine listens at {host}, but user {user} may not use it.",
        advice=f"Run: sudo usermod -aG docker {user} && newgrp docker; then run this again.",
    )


def _root_to_start(found: EngineCandidate) -> Root:
    """Root, where an engine can be started at all."""
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


def _start(desk: ManagedEngine, way: Root, progress: ProgressCallback) -> None:
    places = desk.places
    if dockerd.systemd_runs():
        progress("Starting the Docker engine (systemctl start docker); it is stopped again at the end")
        dockerd.systemd_start(way)
        desk.shares.write("systemd")
    else:
        progress(f"Starting the Docker engine (dockerd, log {places.log}); it is stopped again at the end")
        desk.shares.write(dockerd.start(places, way))
    if ping(places.host).answer is EndpointState.FORBIDDEN:
        # Only the socket of the engine just started, gone with it: membership of the docker group needs a new login.
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
    """The docker client.

    Raises:
        EngineMissing: there is none on PATH.
    """
    docker = which("docker")
    if docker is None:
        raise EngineMissing(
            "The docker command is missing.", advice="Install it (Debian: apt-get install docker-cli, or docker.io)."
        )
    return docker
