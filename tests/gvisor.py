"""Runs a second Docker engine with gVisor's `runsc` runtime, isolated from the machine's own engine.

A new runtime requires a change of the engine's configuration, and we never reconfigure a running engine. The second
engine has its own socket, data, pid file, configuration and network namespace; the process that starts it also stops
it. It has no network to build with, so images are copied into it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from codesdk.provision.engines import dockerd
from codesdk.provision.engines.docker_engine import Engine, ManagedEngine
from codesdk.provision.engines.dockerd import DockerdPaths
from codesdk.provision.engines.endpoint import EndpointState, ping
from codesdk.provision.images.base_image import DockerCommand
from codesdk.provision.servers.shared_server import SharedServer
from codesdk.provision.system import debian
from codesdk.provision.system.command import ProgressCallback, ProvisionFailed, output_tail, root, state_dir, which

RUNTIME = "runsc"
PACKAGE = "runsc"
"""Debian's gVisor package; other distributions install it from gVisor's own archive."""
RUNTIME_ARGS = ("--platform=ptrace", "--network=none")
"""The ptrace platform works without KVM, also in virtual machines. Sandboxes have no network, and Debian's version
from 2022 can't set one up on newer kernels.
"""
COPY_S = 300.0
"""Seconds to copy an image of 400 MB: 10 s here."""


class GvisorMissing(ProvisionFailed):
    """No engine with gVisor can run on this machine."""

    code = "GVISOR_MISSING"


def configuration(path: str) -> dict[str, object]:
    """Return the daemon.json of an engine that uses this runsc and leaves the host's network alone."""
    return {
        "runtimes": {RUNTIME: {"path": path, "runtimeArgs": list(RUNTIME_ARGS)}},
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
    }


def managed_gvisor_engine(directory: Path) -> ManagedEngine:
    """Return the gVisor engine whose files are all in `directory`. Keep it short: a socket path holds 107 bytes."""
    places = DockerdPaths(
        log=directory / "dockerd.log",
        socket=directory / "docker.sock",
        pid_file=directory / "dockerd.pid",
        exec_root=directory / "exec",
        data_root=directory / "data",
        flags=(f"--config-file={directory / 'daemon.json'}",),
        launcher=("unshare", "--net"),  # a dockerd without a bridge would remove the other engine's bridge
    )
    return ManagedEngine(SharedServer(directory, "engine"), places)


def ensure(progress: ProgressCallback, *, managed: ManagedEngine | None = None) -> Engine:
    """Return the engine, started if needed. Installs runsc if apt has it.

    Raises:
        GvisorMissing: not Debian or Ubuntu, no root, no such package, or systemd manages dockerd.
        ProvisionFailed: the installation or the start failed.
    """
    if managed is None:
        directory = state_dir() / "gvisor"
        directory.mkdir(mode=0o700, exist_ok=True)
        managed = managed_gvisor_engine(directory)
    with managed.shares.lock():
        if ping(managed.places.host).answer is EndpointState.ENGINE:
            return Engine(managed.places.host, started_by_us=True, share=managed.shares.register())
        way = root()
        if way is None or which("dockerd") is None:
            raise GvisorMissing(
                "A second Docker engine with gVisor needs root and dockerd on this machine.",
                advice="Register runsc with your own engine instead: docs/how-to/use-gvisor.md.",
            )
        path = which(RUNTIME) or _install(progress)
        progress(
            f"Starting a second Docker engine for gVisor (dockerd, log {managed.places.log}); it is stopped at the end"
        )
        (managed.places.log.parent / "daemon.json").write_text(json.dumps(configuration(path)), encoding="utf-8")
        managed.shares.write(dockerd.start(managed.places, way))
        return Engine(managed.places.host, started_by_us=True, share=managed.shares.register())


def _install(progress: ProgressCallback) -> str:
    if not debian.can_install():
        raise GvisorMissing(
            "gVisor (runsc) is not installed, and cannot be installed here.",
            advice="Install it (https://gvisor.dev/docs/user_guide/install/), then run this again.",
        )
    debian.install((PACKAGE,), "gVisor is not installed", progress)
    path = which(RUNTIME)
    if path is None:
        raise GvisorMissing("The package runsc brought no runsc.", advice=f"Look at: dpkg -L {PACKAGE}")
    return path


def copy_image(image: str, source: Engine, target: Engine, progress: ProgressCallback) -> None:
    """Copy an image from one engine to the other; the id stays the same. Does nothing if the target has it.

    Raises:
        ProvisionFailed: it could not be read or written.
    """
    there, here = DockerCommand(target), DockerCommand(source)
    if there.has(image):
        return
    there("image", "prune", "--all", "--force", deadline_s=60)  # earlier builds; only we use this engine
    progress(f"Copying {image[:19]} to the engine for gVisor")
    with subprocess.Popen(here.argv("save", image), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as saving:
        done = subprocess.run(
            there.argv("load"), stdin=saving.stdout, capture_output=True, text=True, timeout=COPY_S, check=False
        )
    if done.returncode != 0 or saving.returncode != 0 or not there.has(image):
        raise ProvisionFailed(
            f"The image could not be copied: {output_tail(done.stderr) or 'docker save failed'}.",
            advice=f"Try by hand: docker save {image} | docker --host {target.host} load",
        )
