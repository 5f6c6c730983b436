"""A separate dockerd for one test: other socket, data and pid file, and no part of the machine's network."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codesdk.provision.engines import dockerd
from codesdk.provision.engines.docker_engine import Engine
from codesdk.provision.engines.dockerd import DockerdPaths
from codesdk.provision.system.command import root, which
from gvisor import copy_image
from leftovers import end_engine

OWN_ENGINE = [
    pytest.mark.engine,
    # The SDK drops the socket of a connection that is refused without closing it; the collector does.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(which("dockerd") is None, reason="the engine here is not a local dockerd"),
    pytest.mark.skipif(root() is None, reason="a second dockerd needs root"),
    pytest.mark.skipif(dockerd.systemd_runs(), reason="with systemd the engine is a unit"),
]
"""Marks of a module whose tests have an engine of their own."""


class OwnEngine:
    """One that the test may stop, kill and start, beside the machine's."""

    def __init__(self, directory: Path, *, flags: tuple[str, ...] = (), launcher: tuple[str, ...] = ()) -> None:
        """`launcher`: what runs the dockerd, before it gets a network namespace of its own."""
        self.places = DockerdPaths(
            pid_file=directory / "dockerd.pid",
            log=directory / "dockerd.log",
            socket=directory / "docker.sock",
            exec_root=directory / "exec",
            data_root=directory / "data",
            flags=("--bridge=none", "--iptables=false", "--ip6tables=false", *flags),
            launcher=(*launcher, "unshare", "--net"),  # a dockerd without a bridge removes the one of its neighbour
        )
        self.running = None

    def start(self):
        self.running = dockerd.start(self.places, root())

    def stop(self):
        dockerd.stop(self.running, root())

    def kill(self):
        os.kill(self.running.pid, signal.SIGKILL)
        assert self.running.wait(20)

    def clear(self):
        end_engine(self.places.pid_file.parent)
        for place in (self.places.data_root, self.places.exec_root):
            subprocess.run(["umount", "--quiet", "--recursive", str(place)], check=False, capture_output=True)


@contextmanager
def running(directory: Path, image: str, beside: Engine) -> Iterator[OwnEngine]:
    """One that runs and has the image, copied from the machine's; nothing of it is left."""
    made = OwnEngine(directory)
    try:
        made.start()
        copy_image(image, beside, Engine(made.places.host), lambda _: None)
        yield made
    finally:
        made.clear()
        gc.collect()  # what the SDK dropped is found here, under the module's filter, and not in the middle of another test
