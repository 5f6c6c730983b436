"""Sandbox images: found by a digest of their sources, else built."""

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
from codesdk.sandbox.images.checks import LABEL_CONTENT, LABEL_NAME, refusals
from codesdk.sandbox.port.faults import BuildFailed, ImageMissing, ImageRefused

PREFIX = "codesdk-sandbox-"
"""Repository prefix of our images: `codesdk-sandbox-<name>:<content>`."""
PACKAGES = "/usr/share/codesdk/packages.txt"
"""Path of the package list in an image: sorted lines of `name version architecture`."""
_MAX_PACKAGES_BYTES = 4 * 1024 * 1024
_LOG_LINES = 40
_NO_IMAGE = "the engine reported no error and has no image"
_NOT_HASHED = ("README.md", "smoke_test.sh")
"""Files that no build reads, so a change doesn't cause a rebuild."""
_PARENT_ARG = re.compile(rf"^ARG BASE_IMAGE={PREFIX}([a-z0-9._-]+)\s*$", re.MULTILINE)

ReportProgress = Callable[[str], None]


class Package(FrozenModel):
    """A package installed in an image."""

    name: str
    version: str
    architecture: str


def image_names(images: Path) -> tuple[str, ...]:
    """Names of images that can be built: folders with a Dockerfile."""
    return tuple(sorted(path.parent.name for path in images.glob("*/Dockerfile")))


def ensure_image(
    engine: Engine, name: str, *, base: str, images: Path, progress: ReportProgress = lambda _: None
) -> str:
    """The id of the sandbox image `name`, built when no image of this content is on the engine.

    An image whose Dockerfile says `ARG BASE_IMAGE=codesdk-sandbox-<other>` is built on that one, which comes first.

    Args:
        engine: where to look and to build.
        name: a folder in `images`.
        base: reference of the base image; it must be on the engine, or a registry must answer.
        images: the folder `sandbox-images`.
        progress: gets the lines of the build.

    Raises:
        ImageMissing: there is no such folder. BuildFailed: the build ended with an error.
    """
    folder = _image_folder(images, name)
    below = _parent_image(folder, images)
    if below is not None:
        base = ensure_image(engine, below, base=base, images=images, progress=progress)
    content = content_hash(folder, _base_identity(engine, base))
    return find_image(engine, name, content) or _build(engine, folder, base, content, progress)


def locate_image(engine: Engine, name: str, *, base: str, images: Path) -> str | None:
    """The id of the image `name` if it is on the engine as the folder describes it now; nothing is built.

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


def content_hash(folder: Path, base: str) -> str:
    """A digest over the files of the folder, names and modes included, and the base; not over texts about the image."""
    found = hashlib.sha256(base.encode() + b"\0")
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).as_posix() not in _NOT_HASHED:
            executable = path.stat().st_mode & 0o111 != 0
            found.update(f"{path.relative_to(folder).as_posix()}\0{executable}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{found.hexdigest()}"


def reference(name: str, content: str) -> str:
    """The tag for that content digest."""
    return f"{PREFIX}{name}:{content.removeprefix('sha256:')}"


def find_image(engine: Engine, name: str, content: str) -> str | None:
    """The id of an image that was built from this content.

    Tag and labels must agree: every image that is built on one of ours inherits its labels, and a tag alone can be set
    on anything.
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
    """What was recorded when the image was built; empty where nothing was.

    Args:
        engine: where it is.
        image: its id.
        holder: name and labels of the container, never started, that the file is read from.
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
    """Refuse an image that cannot be a sandbox.

    Raises:
        ImageMissing: it is not on the engine. ImageRefused: with every reason.
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
    """Id of the base image if present: a moved tag must cause a rebuild."""
    found = _inspect(engine, base)
    return str(found["Id"]) if found else base


def build_derived_image(
    engine: Engine, base: str, folder: Path, *, tag: str, progress: ReportProgress = lambda _: None
) -> str:
    """The id of what the folder's Dockerfile makes of the image `base`, which it gets as `BASE`; `tag` names it then.

    Raises:
        BuildFailed: the build ended with an error.
    """
    lines = _run_build(engine, tag, progress, path=str(folder), tag=tag, buildargs={"BASE": base})
    found = _inspect(engine, tag)
    if found is None:
        raise BuildFailed(tag, _NO_IMAGE, lines)
    return str(found["Id"])


def _build(engine: Engine, folder: Path, base: str, content: str, progress: ReportProgress) -> str:
    name = folder.name
    lines = _run_build(
        engine,
        name,
        progress,
        path=str(folder),
        tag=reference(name, content),
        buildargs={"BASE_IMAGE": base},
        labels={LABEL_NAME: name, LABEL_CONTENT: content},
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
        # The build's own network: engines that run without a bridge (sandboxes need none) can still build.
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
    """Content of a one-file tar from an untrusted image: bounded, links not followed."""
    packed = bytearray()
    size = 0
    for part in parts:
        # Read to its end even if it is too long: an engine that is left in the middle locks the container.
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
