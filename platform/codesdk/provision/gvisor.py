"""A Docker engine of our own whose runtimes include gVisor's `runsc`, beside the machine's and apart from it.

Registering a runtime needs a change of the engine's configuration, and a running engine is never changed here. The
second engine has its own socket, data, pid file, configuration and network namespace; it is started by who asks and
stopped with it. Images are copied over, for it has no network to build with.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from codesdk.provision import daemon, debian
from codesdk.provision.base_image import DockerCommand
from codesdk.provision.command import ProvisionFailed, Say, last_words, root, state_dir, which
from codesdk.provision.daemon import DaemonPlaces
from codesdk.provision.endpoint import Answer, ping
from codesdk.provision.engine import Engine, EngineDesk
from codesdk.provision.shares import Shares

RUNTIME = "runsc"
PACKAGE = "runsc"
"""Debian's package of gVisor; other distributions take it from gVisor's own archive."""
RUNTIME_ARGS = ("--platform=ptrace", "--network=none")
"""ptrace works without KVM, in virtual machines too. Sandboxes have no network, and Debian's version of 2022 refuses to
set one up on newer kernels."""
COPY_S = 300.0
"""Seconds to copy an image of 400 MB: 10 s here."""


class GvisorMissing(ProvisionFailed):
    """No engine with gVisor can be had here."""

    code = "GVISOR_MISSING"


def configuration(path: str) -> dict[str, object]:
    """The daemon.json of an engine that knows this runsc and touches no network of the host's."""
    return {
        "runtimes": {RUNTIME: {"path": path, "runtimeArgs": list(RUNTIME_ARGS)}},
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
    }


def desk_in(directory: Path) -> EngineDesk:
    """Where that engine keeps everything. The path of a socket holds 107 bytes, so `directory` must be short."""
    places = DaemonPlaces(
        log=directory / "dockerd.log",
        socket=directory / "docker.sock",
        pid_file=directory / "dockerd.pid",
        exec_root=directory / "exec",
        data_root=directory / "data",
        flags=(f"--config-file={directory / 'daemon.json'}",),
        launcher=("unshare", "--net"),  # a dockerd without a bridge removes the one of its neighbour
    )
    return EngineDesk(Shares(directory, "engine"), places)


def ensure(say: Say, *, desk: EngineDesk | None = None) -> Engine:
    """The engine, started if it does not run; runsc is installed where apt has it.

    Raises:
        GvisorMissing: not Debian or Ubuntu, no root, no such package, or dockerd is under systemd's care.
        ProvisionFailed: installing or starting failed.
    """
    if desk is None:
        directory = state_dir() / "gvisor"
        directory.mkdir(mode=0o700, exist_ok=True)
        desk = desk_in(directory)
    with desk.shares.alone():
        if ping(desk.places.host).answer is Answer.ENGINE:
            return Engine(desk.places.host, started_by_us=True, share=desk.shares.join())
        way = root()
        if way is None or which("dockerd") is None:
            raise GvisorMissing(
                "A second Docker engine with gVisor needs root and dockerd on this machine.",
                advice="Register runsc with your own engine instead: docs/how-to/use-gvisor.md.",
            )
        path = which(RUNTIME) or _install(say)
        say(f"Starting a second Docker engine for gVisor (dockerd, log {desk.places.log}); it is stopped at the end")
        (desk.places.log.parent / "daemon.json").write_text(json.dumps(configuration(path)), encoding="utf-8")
        desk.shares.write(daemon.start(desk.places, way))
        return Engine(desk.places.host, started_by_us=True, share=desk.shares.join())


def _install(say: Say) -> str:
    if not debian.can_install():
        raise GvisorMissing(
            "gVisor (runsc) is not installed, and cannot be installed here.",
            advice="Install it (https://gvisor.dev/docs/user_guide/install/), then run this again.",
        )
    debian.install((PACKAGE,), "gVisor is not installed", say)
    path = which(RUNTIME)
    if path is None:
        raise GvisorMissing("The package runsc brought no runsc.", advice=f"Look at: dpkg -L {PACKAGE}")
    return path


def copy_image(image: str, source: Engine, target: Engine, say: Say) -> None:
    """Bring an image from one engine to the other; its id stays. Nothing to do where it is there.

    Raises:
        ProvisionFailed: it could not be read or written.
    """
    there, here = DockerCommand(target), DockerCommand(source)
    if there.has(image):
        return
    there("image", "prune", "--all", "--force", deadline_s=60)  # those of earlier builds: the engine is ours alone
    say(f"Copying {image[:19]} to the engine for gVisor")
    with subprocess.Popen(here.argv("save", image), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as saving:
        done = subprocess.run(
            there.argv("load"), stdin=saving.stdout, capture_output=True, text=True, timeout=COPY_S, check=False
        )
    if done.returncode != 0 or saving.returncode != 0 or not there.has(image):
        raise ProvisionFailed(
            f"The image could not be copied: {last_words(done.stderr) or 'docker save failed'}.",
            advice=f"Try by hand: docker save {image} | docker --host {target.host} load",
        )
