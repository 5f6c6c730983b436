"""An installation started with the real compose program, and helpers to inspect it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(sys.executable).with_name("docker-compose")
PROJECT = "codesdk-test"
"""One name for all runs: what a killed one left is found by it. The lock below keeps two from sharing it."""
LOCK = Path(tempfile.gettempdir()) / "codesdk-compose-test.lock"
FILES = ("compose.yaml", "compose.debian.yaml", "compose.two-hosts.yaml")
SERVICES = ("api", "worker")
"""What brings up all that compose.yaml has, without the second worker."""
SECOND = "worker-2"
BUILT = ("api", "postgres", "redis")
"""A service for each image: all that are the product's own share one."""
BUILD_S = 600.0
UP_S = 300.0


@contextmanager
def alone() -> Iterator[None]:
    """One run at a time on this machine; a killed one's lock is the kernel's to drop."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Installation:
    """`compose.yaml` under a project of its own, on stand-ins for the images that a registry would have."""

    def __init__(self, engine_host: str, second_host: str, base_image: str, scratch: Path) -> None:
        """`second_host`: of another engine, for a second worker; nothing is done there before `lend_images`."""
        self.engine_host = engine_host
        self.second_host = second_host
        self._base_image = base_image
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        policies = scratch / "policies"
        shutil.copytree(ROOT / "policies" / "demo", policies)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(scratch),  # nobody's registry logins or compose files
            "DOCKER_HOST": engine_host,
            "DOCKER_SOCKET": engine_host.removeprefix("unix://"),
            "SECOND_DOCKER_SOCKET": second_host.removeprefix("unix://"),
            "DOCKER_BUILDKIT": "0",
            "BASE_IMAGE": self._test_base(base_image, scratch),
            "PRODUCT_IMAGE": "codesdk:test",
            "PG_IMAGE": "codesdk-postgres:test",
            "REDIS_IMAGE": "codesdk-redis:test",
            "CODESDK_PORT": str(self.port),
            "CODESDK_POLICIES_DIR": str(policies),
        }

    # -- the two programs ---------------------------------------------------------------------------------------------

    def compose(self, *words: str, deadline_s: float = UP_S, check: bool = True) -> str:
        """What it prints on stdout."""
        files = [word for name in FILES for word in ("--file", str(ROOT / name))]
        argv = [str(PROGRAM), "--project-name", PROJECT, "--progress", "quiet", *files, *words]
        return said(argv, self.env, deadline_s, check=check)

    def docker(self, *words: str, host: str = "", deadline_s: float = 60.0, check: bool = True) -> str:
        """What it prints on stdout. `host`: another engine than the installation's own."""
        argv = ["docker", "--host", host or self.engine_host, *words]
        return said(argv, {**os.environ, "DOCKER_BUILDKIT": "0"}, deadline_s, check=check)

    def _test_base(self, base: str, scratch: Path) -> str:
        bundle = Path(ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt")
        if not bundle.is_file():
            return base
        context = scratch / "base"
        shutil.copytree(ROOT / "tests" / "fixtures" / "base", context)
        shutil.copy(bundle, context / "ca-certificates.crt")
        tag = "codesdk-test-base:latest"  # its content is its layers': the same bundle is found in the engine's cache
        self.docker("build", "--quiet", "--build-arg", f"BASE_IMAGE={base}", "--tag", tag, str(context))
        return tag

    # -- its life -----------------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Everything that a layer of an earlier build has is taken from there."""
        self.compose("build", "--quiet", *BUILT, deadline_s=BUILD_S)

    def forget_old_builds(self) -> None:
        """Images of ours that newer builds have replaced, and that are no cache of today's."""
        labelled = ("--filter", "label=codesdk.built", "--filter", "until=24h")
        self.docker("image", "prune", "--force", *labelled, check=False)

    def up(self, *services: str) -> None:
        self.compose("up", "--detach", "--no-build", "--wait", *(services or SERVICES))

    def lend_images(self, sandbox_image: str) -> None:
        """As the guide says: the second engine, which reaches no registry, gets the base and the sandbox image."""
        tags = json.loads(self.docker("image", "inspect", "--format", "{{json .RepoTags}}", sandbox_image))
        saving = ["docker", "--host", self.engine_host, "save", self._base_image, *tags]
        with subprocess.Popen(saving, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as saved:
            loading = ["docker", "--host", self.second_host, "load", "--quiet"]
            subprocess.run(loading, stdin=saved.stdout, check=True, capture_output=True, timeout=BUILD_S)
        assert saved.returncode == 0

    def remove(self) -> None:
        """As the guides say: the workers stop, their sandboxes go, then all the rest."""
        self.compose("stop", "worker", SECOND)
        for worker in ("worker", SECOND):
            self.compose("run", "--rm", "--no-deps", worker, "codesdk", "sandbox", "clear")
        self.compose("down", "--volumes")

    def remove_leftovers(self) -> None:
        """Of a run that was killed: whatever state it was in."""
        if not (left := self.objects()):
            return
        self.compose("stop", "worker", SECOND, check=False)
        for worker in ("worker", SECOND):
            if f"{PROJECT}_{worker}" in left:  # else its data directory, and what it would know, was never made
                self.compose("run", "--rm", "--no-deps", worker, "codesdk", "sandbox", "clear", check=False)
        self.compose("down", "--volumes", "--remove-orphans")

    def objects(self) -> list[str]:
        """Containers, networks and volumes of the project."""
        mine = ("--filter", f"label=com.docker.compose.project={PROJECT}")
        listed = (("ps", "--all", "--format", "{{.Names}}"), ("network", "ls", "--format", "{{.Name}}"))
        kinds = (*listed, ("volume", "ls", "--format", "{{.Name}}"))
        return [name for kind in kinds for name in self.docker(*kind, *mine).split()]

    def instance(self, worker: str = "worker") -> str:
        """The id that its sandboxes are labelled with."""
        return self.inside(worker, "codesdk-as-worker", "cat", "/var/lib/codesdk/instance").strip()

    def sandbox_containers(self, instance: str, host: str = "") -> list[str]:
        mine = f"label=codesdk.instance={instance}"
        return self.docker("ps", "--all", "--format", "{{.Names}}", "--filter", mine, host=host).split()

    def sandbox_volumes(self, instance: str, host: str = "") -> list[str]:
        mine = f"label=codesdk.instance={instance}"
        return self.docker("volume", "ls", "--format", "{{.Name}}", "--filter", mine, host=host).split()

    def container(self, service: str) -> dict[str, Any]:
        """What the engine says of it."""
        found: list[dict[str, Any]] = json.loads(self.docker("inspect", f"{PROJECT}-{service}-1"))
        return found[0]

    def kill(self, service: str) -> None:
        """Its first process, as the kernel would: the engine is not told that somebody wanted it."""
        os.kill(self.container(service)["State"]["Pid"], signal.SIGKILL)

    def wait_healthy(self, service: str, restarts: int = 0, deadline_s: float = 60.0) -> None:
        until = time.monotonic() + deadline_s
        while True:
            found = self.container(service)
            health = found["State"].get("Health", {}).get("Status")
            if health == "healthy" and found["RestartCount"] >= restarts:
                return
            assert time.monotonic() < until, f"{service} is {health}: {self.compose('logs', '--tail', '20', service)}"
            time.sleep(0.5)

    def inside(self, service: str, *words: str) -> str:
        return self.compose("exec", "--no-TTY", service, *words, deadline_s=60)

    # -- its API ------------------------------------------------------------------------------------------------------

    def ask(self, key: str, method: str, path: str, body: bytes | dict[str, Any] | None = None) -> Any:
        """The answer's JSON, or its bytes where it is something else."""
        raw = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = {"Authorization": f"Bearer {key}"}
        if isinstance(body, dict):
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(f"{self.url}{path}", data=raw, method=method, headers=headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as response:
                content = response.read()
                is_json = response.headers.get_content_type() == "application/json"
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from error
        return json.loads(content) if is_json else content


def said(argv: list[str], env: dict[str, str], deadline_s: float, *, check: bool) -> str:
    done = subprocess.run(
        argv,
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if check:
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
