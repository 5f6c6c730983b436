"""Finds and removes unused old builds of this installation's images."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from codesdk.domain.model import FrozenModel
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.images.builder import reference
from codesdk.sandbox.images.checks import LABEL_CONTENT, LABEL_NAME
from codesdk.sandbox.port.faults import EngineRefused


class OldBuild(FrozenModel):
    """An image that can be removed."""

    name: str
    """Folder that it was built from."""
    id: str
    reference: str
    size_bytes: int
    """Size in bytes, including layers shared with others."""
    created_at: float


def old_builds(engine: Engine, keep: Collection[str]) -> tuple[OldBuild, ...]:
    """Return our builds, by tag and labels, that no container and no other image needs.

    Args:
        engine: where to look.
        keep: ids of images that are in use without a container.
    """
    with engine.doing("list images"):
        images: list[dict[str, Any]] = engine.api.images(all=True)
        used = {str(item["ImageID"]) for item in engine.api.containers(all=True)}
    builds = {build.id: build for build in map(_build, images) if build is not None}
    old = set(builds) - used - set(keep)
    needed = _ancestors(
        images, [str(image["Id"]) for image in images if image["Id"] not in old and _has_reference(image)] + [*used]
    )
    return tuple(sorted((builds[id_] for id_ in old - needed), key=lambda build: (build.name, -build.created_at)))


def remove_build(engine: Engine, build: OldBuild) -> str:
    """Remove a build. Returns an empty string, or why it is still there. Never forced: an image in use stays."""
    try:
        with engine.doing(f"remove the image {build.reference}"):
            engine.api.remove_image(build.reference)
    except EngineRefused as refused:
        return refused.message
    return ""


def _build(image: dict[str, Any]) -> OldBuild | None:
    labels = image.get("Labels") or {}
    name, content = str(labels.get(LABEL_NAME, "")), str(labels.get(LABEL_CONTENT, ""))
    tag = reference(name, content) if name and content else ""
    # An image built on ours inherits the labels but not the tag; one with further tags is used by someone else.
    if not tag or image.get("RepoTags") != [tag] or image.get("RepoDigests"):
        return None
    return OldBuild(
        name=name,
        id=str(image["Id"]),
        reference=tag,
        size_bytes=int(image.get("Size", 0)),
        created_at=float(image.get("Created", 0)),
    )


def _has_reference(image: dict[str, Any]) -> bool:
    return bool(set(image.get("RepoTags") or ()) - {"<none>:<none>"}) or bool(image.get("RepoDigests"))


def _ancestors(images: Iterable[dict[str, Any]], tops: Iterable[str]) -> set[str]:
    """Return the ids of all ancestors of these images."""
    parents = {str(image["Id"]): str(image.get("ParentId") or "") for image in images}
    found: set[str] = set()
    for top in tops:
        parent = parents.get(top, "")
        while parent and parent not in found:
            found.add(parent)
            parent = parents.get(parent, "")
    return found
