"""Workspaces that another sandbox reads: there before it is made, and not kept by it when they are removed."""

from __future__ import annotations

from http import HTTPStatus

from docker.errors import APIError

from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.isolation import spec as specs


def volume_exists(engine: Engine, instance: str, sharer: str) -> bool:
    """Whether that volume is the lender's workspace: the engine makes one that it does not find, without our labels."""
    with engine.doing("inspect a volume"):
        labels = engine.api.inspect_volume(specs.container_name(instance, sharer)).get("Labels") or {}
    return bool(labels.get(specs.LABEL_OWNER) == sharer)


def remove_shared_volume(engine: Engine, instance: str, sharer: str) -> None:
    """Remove that workspace's volume; where it is in use, who reads it goes first, and the conflict is raised."""
    try:
        engine.api.remove_volume(specs.container_name(instance, sharer), force=True)
    except APIError as refused:
        if refused.status_code == HTTPStatus.CONFLICT:
            wanted = [f"{specs.LABEL_INSTANCE}={instance}", f"{specs.LABEL_BORROWS}={sharer}"]
            for each in engine.api.containers(all=True, filters={"label": wanted}):
                engine.api.remove_container(each["Id"], force=True, v=True)
        raise
