"""A Docker engine: the one that answers, or one that is installed and started here and stopped again afterwards."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codesdk.provision import daemon, debian
from codesdk.provision.command import ProvisionFailed, Root, Say, root, state_dir, which
from codesdk.provision.daemon import DaemonPlaces
from codesdk.provision.endpoint import Answer, Ping, ping
from codesdk.provision.process import ProcessMark
from codesdk.provision.shares import Share, Shares, Started

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

    def __init__(self, host: str, *, started_by_us: bool = False, share: Share | None = None) -> None:
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
class EngineDesk:
    """Where the engine of this machine is, and where we note who started it and who uses it."""

    shares: Shares
    places: DaemonPlaces


def desk_in(directory: Path) -> EngineDesk:
    """A desk that keeps its files in `directory`, for the engine at the standard places."""
    return EngineDesk(Shares(directory, "engine"), DaemonPlaces(directory / "dockerd.log"))


@dataclass(frozen=True)
class Found:
    """Where an engine was looked for, and what answered there."""

    host: str
    ping: Ping
    variable: str = ""
    """The environment variable that chose the address; empty where nobody chose."""


def find(environ: Mapping[str, str], standard: str) -> Found:
    """The engine that someone chose; else the first that answers of the standard socket and those of a user's own.

    Where none answers, this tells of the standard socket.
    """
    chosen = next((name for name in HOST_VARIABLES if environ.get(name)), None)
    if chosen is not None:
        return Found(environ[chosen], ping(environ[chosen]), chosen)
    first = Found(standard, ping(standard))
    if first.ping.answer is Answer.SILENT:  # systemd's socket answers for an engine that it is only now starting
        first = Found(standard, ping(standard, timeout_s=STARTING_S))
    if first.ping.answer is Answer.ENGINE:
        return first
    others = (f"unix://{environ[name]}/{rest}" for name, rest in USER_SOCKETS if environ.get(name))
    tried = (Found(host, ping(host)) for host in others)
    return next((found for found in tried if found.ping.answer is Answer.ENGINE), first)


def ensure(say: Say, *, desk: EngineDesk | None = None, environ: Mapping[str, str] | None = None) -> Engine:
    """An engine that answers: the chosen one, the standard one, or one installed and started now.

    A running engine is used as it is. Installing needs Debian or Ubuntu and root (or sudo without a password).

    Args:
        say: told before anything is installed or started.
        desk: None for this user's own.
        environ: None for the process's; `CODESDK_DOCKER_HOST` and `DOCKER_HOST` choose an engine.

    Raises:
        EngineMissing: none answers and none can be had here; the advice is the exact next step.
        ProvisionFailed: installing or starting failed.
    """
    desk = desk or desk_in(state_dir())
    with desk.shares.alone():
        found = find(os.environ if environ is None else environ, desk.places.host)
        if found.ping.answer is Answer.ENGINE:
            ours = found.host == desk.places.host and desk.shares.read() is not None
            return Engine(found.host, started_by_us=ours, share=desk.shares.join() if ours else None)
        if found.variable:
            raise EngineMissing(
                f"No Docker engine answers at {found.host} ({found.variable}): {found.ping.detail}.",
                advice=f"Start that engine, or unset {found.variable} to use this machine's own.",
            )
        if found.ping.answer is Answer.FORBIDDEN:
            raise _forbidden(found.host)
        if found.ping.answer is Answer.SILENT:
            raise EngineMissing(
                f"A Docker engine listens at {found.host} and does not answer ({found.ping.detail}).",
                advice="Wait until it has started, or restart it: sudo systemctl restart docker.",
            )
        way = _way_to_start(found)
        _install(say)
        _start(desk, way, say)
        return Engine(found.host, started_by_us=True, share=desk.shares.join())


def _forbidden(host: str) -> EngineMissing:
    user = getpass.getuser()
    return EngineMissing(
        f"A Docker engine listens at {host}, but user {user} may not use it.",
        advice=f"Run: sudo usermod -aG docker {user} && newgrp docker; then run this again.",
    )


def _way_to_start(found: Found) -> Root:
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


def _install(say: Say) -> None:
    if which("dockerd") is None:
        debian.install(PACKAGES, "No Docker engine is installed", say)
    if which("docker") is None:
        debian.install((CLIENT_PACKAGE,), "The docker command is missing", say)


def _start(desk: EngineDesk, way: Root, say: Say) -> None:
    places = desk.places
    if daemon.systemd_runs():
        say("Starting the Docker engine (systemctl start docker); it is stopped again at the end")
        daemon.systemd_start(way)
        desk.shares.write("systemd")
    else:
        say(f"Starting the Docker engine (dockerd, log {places.log}); it is stopped again at the end")
        desk.shares.write(daemon.start(places, way))
    if ping(places.host).answer is Answer.FORBIDDEN:
        # Only the socket of the engine just started, gone with it: membership of the docker group needs a new login.
        say(f"Giving {getpass.getuser()} the socket of the engine just started")
        way.run("chown", getpass.getuser(), str(places.socket), deadline_s=10)
    tried = ping(places.host)
    if tried.answer is not Answer.ENGINE:
        raise ProvisionFailed(
            f"The Docker engine was started but does not answer: {tried.detail}.", advice=f"Its log is {places.log}."
        )


def _stop(started: Started) -> None:
    way = root()
    if way is None:
        how = f"kill {started.pid}" if isinstance(started, ProcessMark) else "systemctl stop docker.socket docker"
        raise ProvisionFailed("Stopping the Docker engine that was started needs root.", advice=f"Run: sudo {how}")
    if isinstance(started, ProcessMark):
        daemon.stop(started, way)
    else:
        daemon.systemd_stop(way)


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
