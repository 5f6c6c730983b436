"""Finds, builds and checks sandbox images: ours, identified by content, and the operator's allowlist."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault
from codesdk.provision.engines.docker_engine import Engine
from codesdk.provision.images import base_image
from codesdk.provision.images.base_image import DockerCommand
from codesdk.provision.system.command import ProgressCallback
from codesdk.sandbox.docker.engine import Engine as EngineClient
from codesdk.sandbox.images.allowlist import read_allowlist
from codesdk.sandbox.images.builder import (
    Package,
    build_derived_image,
    describe,
    ensure_image,
    image_names,
    locate_image,
    locate_image_without_base,
    packages_of,
)
from codesdk.sandbox.images.checks import refusals
from codesdk.sandbox.images.pruning import OldBuild, old_builds, remove_build
from codesdk.sandbox.images.python_probe import Python, find_python
from codesdk.sandbox.isolation.spec import LABEL_INSTANCE, LABEL_OWNER, container_name
from codesdk.sandbox.port.faults import ImageMissing, ImageRefused
from codesdk.sandbox.profiles.profile import Profile
from codesdk.settings import Settings


class ImageNotBuilt(Fault):
    """The engine has no current build of one of our images."""

    code = "IMAGE_NOT_BUILT"
    status = 503
    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The sandbox image {name} is not built, or its folder has changed since.",
            advice=f"Build it with `codesdk images build {name}`.",
            details={"image": name},
        )


class ImageUnknown(Fault):
    """The name is neither one of our images nor on the operator's allowlist."""

    code = "IMAGE_UNKNOWN"
    status = 422
    exit_code = ExitCode.USAGE

    def __init__(self, name: str, known: Iterable[str], listed_in: Path) -> None:
        super().__init__(
            f"There is no sandbox image `{name[:100]}`.",
            advice=f"There are: {', '.join(known) or 'none'}. List others in {listed_in}, by digest.",
            details={"image": name[:100]},
        )


class UsableImage(FrozenModel):
    """An image that passed the check."""

    id: str
    python: Python


class AvailableImages(FrozenModel):
    """The sandbox images on an engine."""

    images: dict[str, str]
    """Name -> image id."""
    missing: dict[str, str] = {}
    """Name -> why it isn't available, and what to do."""


def ensure_image_built(
    engine: Engine, progress: ProgressCallback, *, name: str = "", images: Path | None = None
) -> str:
    """Return the image's id, building it if needed: seconds if the base exists, minutes if that must be built too.

    Without a base, a build of the folder's current content is good enough: a machine without a network can have no other.

    Args:
        engine: where to build.
        progress: receives the start and the steps of a build.
        name: a folder in `images`; empty for the default profile's image.
        images: the folder of sandbox images; None for the configured one.

    Raises:
        ProvisionFailed: there is no base image.
        Fault: the build failed, the engine stopped answering, or there is no such folder (see `sandbox.images`).
    """
    name, images = name or Profile().image, images or Settings().images_dir
    with closing(EngineClient(engine.host)) as client:
        if found := _locate(engine, client, name, images):
            return found
        base = base_image.ensure(engine, progress)
        return ensure_image(client, name, base=base, images=images, progress=lambda line: _report_step(line, progress))


def _locate(engine: Engine, client: EngineClient, name: str, images: Path) -> str | None:
    base = base_image.find(DockerCommand(engine))
    if base is None:
        return locate_image_without_base(client, name, images)
    return locate_image(client, name, base=base, images=images)


class ImageStore:
    """The images of one installation on one engine: ours by content, the operator's by digest."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        """Raises AllowlistInvalid: the operator's allowlist is invalid."""
        self._settings = settings
        self._engine = engine
        self._host = engine.host
        self.built = image_names(settings.images_dir)
        optional = not settings.images_file
        self.allowed = read_allowlist(settings.resolved_images_file(), self.built, optional=optional)
        self._pythons: dict[str, Python] = {}

    def offer(self, names: Iterable[str]) -> AvailableImages:
        """Return which of these images are usable, and why the others aren't. Builds nothing."""
        images: dict[str, str] = {}
        missing: dict[str, str] = {}
        for name in names:
            try:
                images[name] = self.find(name)
            except Fault as fault:
                missing[name] = str(fault)
        return AvailableImages(images=images, missing=missing)

    def find(self, name: str) -> str:
        """Return the id of an image that a profile names.

        Raises:
            ImageUnknown, ImageNotBuilt, ImageMissing: there is no such image. ImageRefused, ImageUnusable: it failed
            the check.
        """
        if name in self.built:
            found = self.locate(name)
            if found is None:
                raise ImageNotBuilt(name)
            return found
        if name in self.allowed:
            return self.check(self.allowed[name]).id
        raise ImageUnknown(name, [*self.built, *self.allowed], self._settings.resolved_images_file())

    def provide(self, name: str, progress: ProgressCallback) -> str:
        """Return the id of an image that a profile names; builds one of ours if it is missing.

        Raises:
            ProvisionFailed: there is no base image. Fault: the build failed, or as `find`.
        """
        if name in self.built:
            return ensure_image_built(self._engine, progress, name=name, images=self._settings.images_dir)
        return self.find(name)

    def make(self, folder: Path, *, tag: str, base: UsableImage, progress: ProgressCallback) -> UsableImage:
        """Build a folder's Dockerfile on the image `base`, passed as build argument `BASE`, and check the result.

        Raises:
            BuildFailed: the build failed. Others as `check`.
        """
        with closing(EngineClient(self._host)) as client:
            made = build_derived_image(
                client, base.id, folder, tag=tag, progress=lambda line: _report_step(line, progress)
            )
        return self.check(made)

    def locate(self, name: str) -> str | None:
        """Return the id of one of our images if its build matches its folder's current content.

        The base counts as well, while the engine has it.
        """
        with closing(EngineClient(self._host)) as client:
            return _locate(self._engine, client, name, self._settings.images_dir)

    def check(self, image: str) -> UsableImage:
        """Check that an image can be a sandbox. Its Python version is probed once per image id.

        `image`: id, registry digest, or tag. A tag may move; the other two are exact.

        Raises:
            ImageMissing: the engine does not have it.
            ImageRefused: with every reason. ImageUnusable: it has no suitable Python.
        """
        with closing(EngineClient(self._host)) as client:
            found = describe(client, image)
            if found is None:
                raise ImageMissing(image)
            with client.doing("read its version"):
                architecture = str(client.api.version()["Arch"])
            if reasons := refusals(found, architecture):
                raise ImageRefused(image, reasons)
            key = str(found["Id"])
            if key not in self._pythons:
                self._pythons[key] = find_python(client, key, self._probe_container())
            return UsableImage(id=key, python=self._pythons[key])

    def old_builds(self, wanted: Collection[str] = ()) -> tuple[OldBuild, ...]:
        """Return builds of ours that nothing uses. `wanted`: ids of images that are in use without a container."""
        current = {found for name in self.built if (found := self.locate(name)) is not None}
        with closing(EngineClient(self._host)) as client:
            return old_builds(client, {*current, *wanted, *self.allowed.values()})

    def remove(self, build: OldBuild) -> str:
        """Remove a build. Returns an empty string, or why it could not be removed."""
        with closing(EngineClient(self._host)) as client:
            return remove_build(client, build)

    def packages(self, image: str) -> tuple[Package, ...]:
        """Return the packages recorded when the image was built."""
        with closing(EngineClient(self._host)) as client:
            return packages_of(client, image, self._probe_container())

    def _probe_container(self) -> dict[str, Any]:
        """Return name and labels of a short-lived probe container.

        The labels let a sweep remove it if this process dies.
        """
        instance, owner = self._settings.instance_id(), f"look_{secrets.token_hex(8)}"
        return {"name": container_name(instance, owner), "labels": {LABEL_INSTANCE: instance, LABEL_OWNER: owner}}


def _report_step(line: str, progress: ProgressCallback) -> None:
    """Report the build's steps without the output of their commands."""
    if line.startswith("Step "):
        progress(f"Building the sandbox image: {line}")
