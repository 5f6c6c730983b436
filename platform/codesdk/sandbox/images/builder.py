"""Finds sandbox images by a digest of their sources, or builds them."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from docker.errors import ImageNotFound, NotFound

from codesdk.domain.model import FrozenModel
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.images.checks import LABEL_CONTENT, LABEL_NAME, LABEL_SOURCES, refusals
from codesdk.sandbox.port.faults import BuildFailed, ImageMissing, ImageRefused

PREFIX = "codesdk-sandbox-"
"""Repository prefix of our images: `codesdk-sandbox-<name>:<content>`."""
PACKAGES = "/usr/share/codesdk/packages.txt"
"""Package list in an image: sorted lines of `name version architecture`."""
_MAX_PACKAGES_BYTES = 4 * 1024 * 1024
_LOG_LINES = 40
_NO_IMAGE = "the engine reported no error and has no image"
_NOT_HASHED = ("README.md", "smoke_test.sh", "contents.txt")
"""Files that the build doesn't read, so that changing them causes no rebuild."""
_PARENT_ARG = re.compile(rf"^ARG BASE_IMAGE={PREFIX}([a-z0-9._-]+)\s*$", re.MULTILINE)

ReportProgress = Callable[[str], None]


class Package(FrozenModel):
    """A package installed in an image."""

    name: str
    version: str
    architecture: str


def image_names(images: Path) -> tuple[str, ...]:
    """Return the names of images that can be built: folders with a Dockerfile."""
    return tuple(sorted(path.parent.name for path in images.glob("*/Dockerfile")))


def ensure_image(
    engine: Engine, name: str, *, base: str, images: Path, progress: ReportProgress = lambda _: None
) -> str:
    """Return the id of the sandbox image `name`; builds it if the engine has no image of this content.

    An image whose Dockerfile has `ARG BASE_IMAGE=codesdk-sandbox-<other>` is built on that image, which is built first.

    Args:
        engine: where to look and build.
        name: a folder in `images`.
        base: reference of the base image, on the engine or in a reachable registry.
        images: the folder `sandbox-images`.
        progress: receives the lines of the build log.

    Raises:
        ImageMissing: there is no such folder. BuildFailed: the build failed.
    """
    folder = _image_folder(images, name)
    below = _parent_image(folder, images)
    if below is not None:
        base = ensure_image(engine, below, base=base, images=images, progress=progress)
    content = content_hash(folder, _base_identity(engine, base))
    found = find_image(engine, name, content)
    return found or _build(
        engine, folder, base=base, content=content, sources=sources_hash(images, name), progress=progress
    )


def locate_image(engine: Engine, name: str, *, base: str, images: Path) -> str | None:
    """Return the id of the image `name` if the engine has it with the folder's current content. Builds nothing.

    Raises:
        ImageMissing: there is no such folder.
    """
    folder = _image_folder(images, name)
    below = _parent_image(folder, images)
    if below is not None:
        found = locate_image(engine, below, base=base, images=images)
        if found is None:
            return None
        base = found
    return find_image(engine, name, content_hash(folder, _base_identity(engine, base)))


def locate_image_without_base(engine: Engine, name: str, images: Path) -> str | None:
    """Return the id of the newest image that was built from the folder's current content on a base that may be gone.

    Raises:
        ImageMissing: there is no such folder.
    """
    sources = sources_hash(images, name)
    with engine.doing("list images"):
        listed = engine.api.images(filters={"label": [f"{LABEL_NAME}={name}", f"{LABEL_SOURCES}={sources}"]})
    for image in sorted(listed, key=lambda image: -int(image["Created"])):
        # `find_image` checks the tag: images built on ours inherit the labels.
        if find_image(engine, name, str(image["Labels"].get(LABEL_CONTENT))) == image["Id"]:
            return str(image["Id"])
    return None


def sources_hash(images: Path, name: str) -> str:
    """Return a digest over the folder's files and those of our image below it, whatever the base.

    Raises:
        ImageMissing: there is no such folder.
    """
    folder = _image_folder(images, name)
    below = _parent_image(folder, images)
    return content_hash(folder, sources_hash(images, below) if below is not None else "")


def content_hash(folder: Path, base: str) -> str:
    """Return a digest over the base and the folder's files with names and modes, except documentation and tests."""
    found = hashlib.sha256(base.encode() + b"\0")
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).as_posix() not in _NOT_HASHED:
            executable = path.stat().st_mode & 0o111 != 0
            found.update(f"{path.relative_to(folder).as_posix()}\0{executable}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{found.hexdigest()}"


def reference(name: str, content: str) -> str:
    """Return the tag for this content digest."""
    return f"{PREFIX}{name}:{content.removeprefix('sha256:')}"


def find_image(engine: Engine, name: str, content: str) -> str | None:
    """Return the id of the image that was built from this content; None if there is none.

    Tag and labels must agree: images built on ours inherit the labels, and anyone can set a tag.
    """
    found = _inspect(engine, reference(name, content))
    labels = (found["Config"].get("Labels") or {}) if found else {}
    if found is None or (labels.get(LABEL_NAME), labels.get(LABEL_CONTENT)) != (name, content):
        return None
    return str(found["Id"])


def describe(engine: Engine, image: str) -> dict[str, Any] | None:
    """Inspect an image by id, registry digest or tag."""
    return find_by_digest(engine, image) if image.startswith("sha256:") else _inspect(engine, image)


def find_by_digest(engine: Engine, digest: str) -> dict[str, Any] | None:
    """Inspect an image by id or registry digest."""
    with engine.doing("list images"):
        listed = engine.api.images()
    for image in listed:
        if digest in (image["Id"], *(entry.rpartition("@")[2] for entry in image.get("RepoDigests") or ())):
            return _inspect(engine, image["Id"])
    return None


def packages_of(engine: Engine, image: str, holder: dict[str, Any]) -> tuple[Package, ...]:
    """Return the package list recorded at build; empty if there is none.

    Args:
        engine: where the image is.
        image: its id.
        holder: name and labels of the container that the file is read from. It is never started.
    """
    with engine.doing("read an image's package list", image=image):
        container = engine.api.create_container(image, command=["-"], network_disabled=True, **holder)
        try:
            parts, _ = engine.api.get_archive(container["Id"], PACKAGES)
            return tuple(_packages(_read_one_file(parts)))
        except NotFound:
            return ()
        finally:
            engine.api.remove_container(container["Id"], force=True, v=True)


def check_image(engine: Engine, image: str) -> None:
    """Check that an image can be used for sandboxes.

    Raises:
        ImageMissing: it isn't on the engine. ImageRefused: with all reasons.
    """
    found = _inspect(engine, image)
    if found is None:
        raise ImageMissing(image)
    if reasons := refusals(found):
        raise ImageRefused(image, reasons)


def _image_folder(images: Path, name: str) -> Path:
    if name not in image_names(images):
        raise ImageMissing(name)
    return images / name


def _parent_image(folder: Path, images: Path) -> str | None:
    found = _PARENT_ARG.search((folder / "Dockerfile").read_text("utf-8"))
    return found[1] if found and found[1] in image_names(images) and found[1] != folder.name else None


def _inspect(engine: Engine, image: str) -> dict[str, Any] | None:
    with engine.doing("inspect an image"):
        try:
            found: dict[str, Any] = engine.client.images.get(image).attrs
        except ImageNotFound:
            return None
    return found


def _base_identity(engine: Engine, base: str) -> str:
    """Return the id of the base image if present, so that a moved tag causes a rebuild."""
    found = _inspect(engine, base)
    return str(found["Id"]) if found else base


def build_derived_image(
    engine: Engine, base: str, folder: Path, *, tag: str, progress: ReportProgress = lambda _: None
) -> str:
    """Build the folder's Dockerfile on the image `base`, passed as `BASE`; tag the result and return its id.

    Raises:
        BuildFailed: the build failed.
    """
    lines = _run_build(engine, tag, progress, path=str(folder), tag=tag, buildargs={"BASE": base})
    found = _inspect(engine, tag)
    if found is None:
        raise BuildFailed(tag, _NO_IMAGE, lines)
    return str(found["Id"])


def _build(engine: Engine, folder: Path, *, base: str, content: str, sources: str, progress: ReportProgress) -> str:
    name = folder.name
    lines = _run_build(
        engine,
        name,
        progress,
        path=str(folder),
        tag=reference(name, content),
        buildargs={"BASE_IMAGE": base},
        labels={LABEL_NAME: name, LABEL_CONTENT: content, LABEL_SOURCES: sources},
    )
    found = find_image(engine, name, content)
    if found is None:
        raise BuildFailed(name, _NO_IMAGE, lines)
    return found


def _run_build(engine: Engine, name: str, progress: ReportProgress, **wish: Any) -> str:
    """Build the image; returns the last lines of the log."""
    lines: list[str] = []
    error = ""
    with engine.doing(f"build the image {name}"):
        # Host network: engines without a bridge, which sandboxes don't need, can still build.
        for event in engine.api.build(**wish, rm=True, forcerm=True, decode=True, network_mode="host"):
            text = str(event.get("stream") or event.get("status") or event.get("error") or "").rstrip()
            if text:
                lines.append(text)
                progress(text)
            error = error or str(event.get("error", ""))
    last = "\n".join(lines[-_LOG_LINES:])
    if error:
        raise BuildFailed(name, error, last)
    return last


def _read_one_file(parts: Iterator[bytes]) -> bytes:
    """Return the content of a one-file tar from an untrusted image; bounded, follows no links."""
    packed = bytearray()
    size = 0
    for part in parts:
        # Read to the end even if it is too long: an unfinished download leaves the container locked.
        size += len(part)
        packed = packed + part if size <= _MAX_PACKAGES_BYTES else bytearray()
    if size > _MAX_PACKAGES_BYTES:
        return b""
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            member = tar.next()
            content = tar.extractfile(member) if member is not None and member.isfile() else None
            return content.read() if content is not None else b""
    except tarfile.TarError:
        return b""


def _packages(content: bytes) -> Iterator[Package]:
    for line in content.decode("utf-8", "replace").splitlines():
        match line.split():
            case [name, version, architecture]:
                yield Package(name=name, version=version, architecture=architecture)
