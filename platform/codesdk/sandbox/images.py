"""Sandbox images: found by what they were made from, else built; and what an image must not contain."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docker.errors import ImageNotFound

from codesdk.sandbox.engine import Engine
from codesdk.sandbox.faults import BuildFailed, ImageMissing, ImageRefused
from codesdk.sandbox.spec import LABEL_INSTANCE, LABEL_OWNER, LABEL_SPEC

LABEL_NAME = "codesdk.image.name"
LABEL_CONTENT = "codesdk.image.content"
_LOG_LINES = 40
_FORBIDDEN_ENV = re.compile(r"(LD_|PYTHON(?!_)|GLIBC_TUNABLES|GCONV_PATH|BASH_ENV$|ENV$)")
"""Variables that a loader or interpreter obeys: the runner, root's, starts with the image's ENV. PYTHON_VERSION and its
like, which python:* images set, are read by nobody."""

Say = Callable[[str], None]


def ensure_image(engine: Engine, name: str, *, base: str, images: Path, say: Say = lambda _: None) -> str:
    """The id of the sandbox image `name`, built when no image of this content is on the engine.

    Args:
        engine: where to look and to build.
        name: a folder in `images`.
        base: reference of the base image; it must be on the engine, or a registry must answer.
        images: the folder `sandbox-images`.
        say: gets the lines of the build.

    Raises:
        ImageMissing: there is no such folder. BuildFailed: the build ended with an error.
    """
    folder = images / name
    if not (folder / "Dockerfile").is_file():
        raise ImageMissing(name)
    content = content_hash(folder, _base_identity(engine, base))
    return find_image(engine, name, content) or _build(engine, folder, base, content, say)


def content_hash(folder: Path, base: str) -> str:
    """A digest over every file of the folder, names and modes included, and the base."""
    found = hashlib.sha256(base.encode() + b"\0")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            executable = path.stat().st_mode & 0o111 != 0
            found.update(f"{path.relative_to(folder).as_posix()}\0{executable}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{found.hexdigest()}"


def find_image(engine: Engine, name: str, content: str) -> str | None:
    """The id of an image that was built from this content."""
    labels = [f"{LABEL_NAME}={name}", f"{LABEL_CONTENT}={content}"]
    with engine.doing("list images"):
        found = engine.api.images(filters={"label": labels})
    return str(found[0]["Id"]) if found else None


def _base_identity(engine: Engine, base: str) -> str:
    """The base's id where it is on the engine: a tag that moved must cause a new build."""
    with engine.doing("inspect an image"):
        try:
            return str(engine.client.images.get(base).id)
        except ImageNotFound:
            return base


def _build(engine: Engine, folder: Path, base: str, content: str, say: Say) -> str:
    name = folder.name
    lines: list[str] = []
    error = ""
    with engine.doing(f"build the image {name}"):
        events = engine.api.build(
            path=str(folder),
            tag=f"codesdk-sandbox-{name}:latest",
            buildargs={"BASE_IMAGE": base},
            labels={LABEL_NAME: name, LABEL_CONTENT: content},
            rm=True,
            forcerm=True,
            decode=True,
            # The build's own network: engines that run without a bridge (sandboxes need none) can still build.
            network_mode="host",
        )
        for event in events:
            text = str(event.get("stream") or event.get("status") or event.get("error") or "").rstrip()
            if text:
                lines.append(text)
                say(text)
            error = error or str(event.get("error", ""))
    if error:
        raise BuildFailed(name, error, "\n".join(lines[-_LOG_LINES:]))
    found = find_image(engine, name, content)
    if found is None:
        raise BuildFailed(name, "the engine reported no error and has no image", "\n".join(lines[-_LOG_LINES:]))
    return found


def refusals(inspected: dict[str, Any]) -> tuple[str, ...]:
    """Why an image cannot be a sandbox; empty where it can. Takes the engine's description of the image."""
    config = inspected.get("Config") or {}
    reasons = []
    if config.get("Volumes"):
        # They stay writable under a read-only root, and leave anonymous volumes behind.
        reasons.append(f"it declares volumes ({', '.join(sorted(config['Volumes']))})")
    names = sorted(entry.partition("=")[0] for entry in config.get("Env") or ())
    forbidden = [name for name in names if _FORBIDDEN_ENV.match(name)]
    if forbidden:
        reasons.append(f"it sets {', '.join(forbidden)}, which would act on the runner")
    forged = sorted({LABEL_INSTANCE, LABEL_OWNER, LABEL_SPEC} & set(config.get("Labels") or {}))
    if forged:
        reasons.append(f"it carries labels that say whose a sandbox is ({', '.join(forged)})")
    return tuple(reasons)


def check_image(engine: Engine, image: str) -> None:
    """Refuse an image that cannot be a sandbox.

    Raises:
        ImageMissing: it is not on the engine. ImageRefused: with every reason.
    """
    with engine.doing("inspect an image", image=image):
        found = engine.client.images.get(image)
    if reasons := refusals(found.attrs):
        raise ImageRefused(image, reasons)
