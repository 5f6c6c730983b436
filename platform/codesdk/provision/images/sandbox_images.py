"""The images that sandboxes run in: found by content, built on a base that was found or made, or the operator's own."""

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
    """An image of ours that is not on the engine as its folder describes it."""

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
    """A name that is neither an image of ours nor on the operator's list."""

    code = "IMAGE_UNKNOWN"
    status = 422
    exit_code = ExitCode.USAGE

    def __init__(self, name: str, known: Iterable[str], listed_in: Path) -> None:
        super().__init__(
            f"There is no sandbox image `{name[:100]}`.",
            advice=f"There are: {', '.join(known) or 'none'}. Others come on the list {listed_in}, by digest.",
            details={"image": name[:100]},
        )


class UsableImage(FrozenModel):
    """An image that can be a sandbox."""

    id: str
    python: Python


class AvailableImages(FrozenModel):
    """What an engine has for sandboxes."""

    images: dict[str, str]
    """Name -> image id."""
    missing: dict[str, str] = {}
    """Name -> why it is not offered, and what to do."""


def ensure_image_built(
    engine: Engine, progress: ProgressCallback, *, name: str = "", images: Path | None = None
) -> str:
    """The image's id. Built once; seconds where the base is there, minutes where it must be made as well.

    Args:
        engine: where to build.
        progress: told that a build begins and of its steps.
        name: a folder in `images`; empty for the default profile's.
        images: the folder of sandbox images; None for the configured one.

    Raises:
        ProvisionFailed: no base image can be had.
        Fault: the build failed, the engine went away, or there is no such folder (see `sandbox.images`).
    """
    base = base_image.ensure(engine, progress)
    client = EngineClient(engine.host)
    try:
        return ensure_image(
            client,
            name or Profile().image,
            base=base,
            images=images or Settings().images_dir,
            progress=lambda line: _report_step(line, progress),
        )
    finally:
        client.close()


class ImageStore:
    """The images of one installation on one engine: ours by content, the operator's by digest."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        """Raises AllowlistInvalid: the operator's list cannot be used."""
        self._settings = settings
        self._engine = engine
        self._host = engine.host
        self.built = image_names(settings.images_dir)
        optional = not settings.images_file
        self.allowed = read_allowlist(settings.resolved_images_file(), self.built, optional=optional)
        self._pythons: dict[str, Python] = {}

    def offer(self, names: Iterable[str]) -> AvailableImages:
        """Which of these images can be sandboxes here, and why the others cannot; nothing is built."""
        images: dict[str, str] = {}
        missing: dict[str, str] = {}
        for name in names:
            try:
                images[name] = self.find(name)
            except Fault as fault:
                missing[name] = str(fault)
        return AvailableImages(images=images, missing=missing)

    def find(self, name: str) -> str:
        """The id of an image that a profile names.

        Raises:
            ImageUnknown, ImageNotBuilt, ImageMissing: it is not there. ImageRefused, ImageUnusable: it cannot be one.
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
        """The id of an image that a profile names; one of ours is built where it is not there.

        Raises:
            ProvisionFailed: no base image can be had. Fault: the build failed, or as `find`.
        """
        if name in self.built:
            return ensure_image_built(self._engine, progress, name=name, images=self._settings.images_dir)
        return self.find(name)

    def make(self, folder: Path, *, tag: str, base: UsableImage, progress: ProgressCallback) -> UsableImage:
        """Build a folder's Dockerfile on the image `base`, which it gets as `BASE`, and see that it can be a sandbox.

        Raises:
            BuildFailed: the build ended with an error. As `check`.
        """
        with closing(EngineClient(self._host)) as client:
            made = build_derived_image(
                client, base.id, folder, tag=tag, progress=lambda line: _report_step(line, progress)
            )
        return self.check(made)

    def locate(self, name: str) -> str | None:
        """The id of an image of ours, where it is built as its folder describes it now."""
        base = base_image.find(DockerCommand(self._engine))
        if base is None:
            return None
        with closing(EngineClient(self._host)) as client:
            return locate_image(client, name, base=base, images=self._settings.images_dir)

    def check(self, image: str) -> UsableImage:
        """See that an image can be a sandbox. What Python it has is asked once for each image id.

        `image`: id, digest in a registry, or tag; only the first two say for certain what is meant.

        Raises:
            ImageMissing: it is not on the engine.
            ImageRefused: with every reason. ImageUnusable: it has no Python that will do.
        """
        with closing(EngineClient(self._host)) as client:
            found = describe(client, image)
            if found is None:
                raise ImageMissing(image)
            with client.doing("say what it is"):
                architecture = str(client.api.version()["Arch"])
            if reasons := refusals(found, architecture):
                raise ImageRefused(image, reasons)
            key = str(found["Id"])
            if key not in self._pythons:
                self._pythons[key] = find_python(client, key, self._probe_container())
            return UsableImage(id=key, python=self._pythons[key])

    def old_builds(self, wanted: Collection[str] = ()) -> tuple[OldBuild, ...]:
        """Builds of ours that nothing uses. Wanted: ids of images that are in use without a container."""
        current = {found for name in self.built if (found := self.locate(name)) is not None}
        with closing(EngineClient(self._host)) as client:
            return old_builds(client, {*current, *wanted, *self.allowed.values()})

    def remove(self, build: OldBuild) -> str:
        """Remove one; empty when it is gone, else why it is not."""
        with closing(EngineClient(self._host)) as client:
            return remove_build(client, build)

    def packages(self, image: str) -> tuple[Package, ...]:
        """What was recorded when the image was built."""
        with closing(EngineClient(self._host)) as client:
            return packages_of(client, image, self._probe_container())

    def _probe_container(self) -> dict[str, Any]:
        """Name and labels of a container that lives for a second: a sweep removes it where its maker died."""
        instance, owner = self._settings.instance_id(), f"look_{secrets.token_hex(8)}"
        return {"name": container_name(instance, owner), "labels": {LABEL_INSTANCE: instance, LABEL_OWNER: owner}}


def _report_step(line: str, progress: ProgressCallback) -> None:
    """The build's steps, without what their commands print."""
    if line.startswith("Step "):
        progress(f"Building the sandbox image: {line}")
