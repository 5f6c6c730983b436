"""Provides the image that sandbox images are built on: pulled from a registry, or a Debian built with debootstrap."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from codesdk.errors import Fault
from codesdk.provision.engines.docker_engine import Engine, docker_command
from codesdk.provision.engines.endpoint import tls_flags
from codesdk.provision.system import apt_sources, debian
from codesdk.provision.system.command import (
    Outcome,
    ProgressCallback,
    ProvisionFailed,
    Root,
    root,
    run,
    state_dir,
    which,
)
from codesdk.sandbox.docker.engine import Engine as EngineClient
from codesdk.sandbox.images.builder import describe

PUBLIC = "python:3.12-slim-bookworm"
LOCAL_REPOSITORY = "codesdk-base"
LABEL = "codesdk.base"
INCLUDE = ("ca-certificates", "python3")
"""Debian's minbase has no Python. The runner needs python3, because python3-minimal lacks `json`."""
TOO_OLD = frozenset({"buster", "bullseye", "focal", "jammy"})
"""Releases whose python3 is older than 3.11, which the sandbox needs."""
RECIPE = 1
"""Version of the build steps below. Increment it when they change the result."""
DEBOOTSTRAP_S = 900.0
PACK = (
    'printf "%s" "$2" > "$1/etc/apt/sources.list"'
    ' && exec tar -C "$1" --numeric-owner --one-file-system --sort=name'
    " --exclude='./var/cache/apt/archives/*.deb' --exclude='./var/cache/apt/*.bin' --exclude='./var/lib/apt/lists/*'"
    " --exclude=./var/log/bootstrap.log --exclude=./etc/hostname --exclude=./etc/resolv.conf"
    " --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' -cf - ."
)
"""Packs the tree `$1` with the apt sources `$2`, without downloads, package lists and the machine's name."""


class BaseImageMissing(ProvisionFailed):
    """No base image could be pulled or built."""

    code = "BASE_IMAGE_MISSING"


def content_label(codename: str) -> str:
    """Return a hash of the image's inputs: release, packages, recipe.

    Mirrors don't change the content, so they aren't included.
    """
    described = json.dumps([codename, sorted(INCLUDE), RECIPE])
    return "sha256:" + hashlib.sha256(described.encode()).hexdigest()


class DockerCommand:
    """One engine.

    Reads through its API, so the docker command is needed only to build or import (a container has none).
    """

    def __init__(self, engine: Engine) -> None:
        self._host = engine.host

    def argv(self, *words: str) -> list[str]:
        """Return a docker command line.

        Raises:
            EngineMissing: there is no docker command here.
        """
        return [docker_command(), *tls_flags(self._host), "--host", self._host, *words]

    def __call__(self, *words: str, deadline_s: float = 30.0) -> Outcome:
        """Run a docker command and capture its output."""
        return run(self.argv(*words), deadline_s=deadline_s)

    def has(self, reference: str) -> bool:
        """Whether the engine has the image."""
        return self._describe(reference) is not None

    def label_of(self, reference: str, label: str) -> str | None:
        """Return the value of the image's label; None if there is no such image or label."""
        found = self._describe(reference)
        labels = (found["Config"].get("Labels") or {}) if found else {}
        return labels.get(label) or None

    def tagged(self, repository: str) -> str | None:
        """Return the id of the newest image with any tag of this repository."""
        with closing(EngineClient(self._host)) as client, client.doing("list images"):
            found = client.api.images(name=repository)
        return str(found[0]["Id"]) if found else None

    def pull(self, reference: str) -> None:
        """Pull an image from its registry.

        Raises:
            ImageMissing: the registry does not have it. EngineRefused: the registry doesn't answer.
        """
        name, _, tag = reference.rpartition(":")
        with closing(EngineClient(self._host)) as client, client.doing("pull an image", image=reference):
            client.api.pull(name, tag=tag)

    def _describe(self, reference: str) -> dict[str, Any] | None:
        with closing(EngineClient(self._host)) as client:
            return describe(client, reference)


def ensure(engine: Engine, progress: ProgressCallback) -> str:
    """Return the reference of the base image. Pulls or builds it once; later calls find it.

    Raises:
        BaseImageMissing: no registry answers and debootstrap can't build one here.
        ProvisionFailed: debootstrap could not be installed, or the build failed.
    """
    docker = DockerCommand(engine)
    there = find(docker)
    if there is not None:
        return there
    if _pull(docker, progress):
        return PUBLIC
    return build_with_debootstrap(docker, progress)


def find(docker: DockerCommand) -> str | None:
    """Return the reference of the base image if the engine has it. Pulls and builds nothing."""
    return PUBLIC if docker.has(PUBLIC) else find_local_build(docker)


def find_local_build(docker: DockerCommand) -> str | None:
    """Find the base that an earlier run built with this recipe.

    Searches by tag: every image built on the base inherits its label.
    """
    codename = debian.release().codename
    reference = f"{LOCAL_REPOSITORY}:{codename}"
    return reference if docker.label_of(reference, LABEL) == content_label(codename) else None


def _pull(docker: DockerCommand, progress: ProgressCallback) -> bool:
    progress(f"Pulling {PUBLIC} (once)")
    try:
        docker.pull(PUBLIC)
    except Fault as fault:
        progress(f"No image registry provides it: {fault.message}")
        return False
    return docker.has(PUBLIC)


def build_with_debootstrap(docker: DockerCommand, progress: ProgressCallback) -> str:
    """Build a minimal Debian with Python from this machine's configured mirror and import it.

    Raises:
        BaseImageMissing: not Debian or Ubuntu, too old, or root is missing.
        ProvisionFailed: a step failed.
    """
    codename = debian.release().codename
    sources = apt_sources.configured_sources()
    mirror = apt_sources.mirror_of(codename, sources)
    way = root()
    if mirror is None or way is None or codename in TOO_OLD:
        raise BaseImageMissing(
            f"{PUBLIC} is not on the engine, no registry answers, and none can be built here"
            f" ({_why_not_buildable(codename, mirror, way)}).",
            advice=f"On a machine with a registry: docker pull {PUBLIC} && docker save {PUBLIC} > base.tar;"
            " here: docker load < base.tar",
        )
    if which("debootstrap") is None:
        debian.install(("debootstrap",), "debootstrap is needed to build a base image", progress)
    progress(
        f"Building the base image {LOCAL_REPOSITORY}:{codename} with debootstrap from {mirror.uri} (once, about a minute)"
    )
    reference = f"{LOCAL_REPOSITORY}:{codename}"
    with _rootfs(way) as rootfs:
        bootstrap = ("debootstrap", "--variant=minbase", f"--include={','.join(INCLUDE)}", codename)
        done = way.run(*_proxy(), *bootstrap, str(rootfs), mirror.uri, deadline_s=DEBOOTSTRAP_S)
        if not done.ok:
            raise ProvisionFailed(f"debootstrap failed: {done.output_tail()}.", advice=f"Is {mirror.uri} reachable?")
        lines = [source.line() for source in apt_sources.release_sources(codename, sources)]
        packed = way.argv("sh", "-c", PACK, "sh", str(rootfs), "\n".join([*lines, ""]))
        _import(docker, packed, reference, content_label(codename))
    return reference


def _why_not_buildable(codename: str, mirror: apt_sources.Source | None, way: Root | None) -> str:
    if way is None:
        return "that needs root"
    if mirror is None:
        return f"apt has no mirror of {codename or 'a Debian release'} configured"
    return f"{codename} has a Python older than 3.11"


def _proxy() -> tuple[str, ...]:
    """Return environment assignments that pass apt's proxy to debootstrap, whose wget ignores apt's configuration."""
    output = run(["apt-config", "shell", "P", "Acquire::http::Proxy"], deadline_s=10).stdout.strip()
    words = shlex.split(output.removeprefix("P="))
    return (f"http_proxy={words[0]}",) if words and words[0] != "DIRECT" else ()


@contextlib.contextmanager
def _rootfs(way: Root) -> Iterator[Path]:
    """Yield an empty directory for the tree.

    The path is fixed, so that a later run finds and removes what a killed one left.
    """
    home = state_dir()
    rootfs = home / "base-rootfs"
    with (home / "base.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove(rootfs, way)
        try:
            yield rootfs
        finally:
            _remove(rootfs, way)


def _remove(rootfs: Path, way: Root) -> None:
    for mounted in ("proc", "sys", "dev"):  # still mounted if debootstrap was killed
        way.run("umount", "--lazy", "--quiet", str(rootfs / mounted), deadline_s=30)
    way.run("rm", "-rf", "--one-file-system", str(rootfs), deadline_s=120)


def _import(docker: DockerCommand, packed: list[str], reference: str, label: str) -> None:
    """Stream the tar that `packed` writes into the engine."""
    changes = (f"LABEL {LABEL}={label}", 'CMD ["/bin/bash"]', "ENV LANG=C.UTF-8")
    words = ("import", *(word for change in changes for word in ("--change", change)), "-", reference)
    with subprocess.Popen(packed, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as tar:
        done = subprocess.run(docker.argv(*words), stdin=tar.stdout, capture_output=True, text=True, check=False)
    if done.returncode or tar.returncode:
        why = done.stderr.strip() or f"tar ended with {tar.returncode}"
        raise ProvisionFailed(f"The base image could not be imported: {why}", advice="Is the engine's disk full?")
