"""Workspaces that another sandbox reads: there before it is made, and not kept by it when they are removed."""

from __future__ import annotations

from http import HTTPStatus

from docker.errors import APIError

from codesdk.sandbox import spec as specs
from codesdk.sandbox.engine import Engine


def is_there(engine: Engine, instance: str, lender: str) -> bool:
    """Whether that volume is the lender's workspace: the engine makes one that it does not find, without our labels."""
    with engine.doing("inspect a volume"):
        labels = engine.api.inspect_volume(specs.name_of(instance, lender)).get("Labels") or {}
    return bool(labels.get(specs.LABEL_OWNER) == lender)


def take_back(engine: Engine, instance: str, lender: str) -> None:
    """Remove that workspace's volume; where it is in use, who reads it goes first, and the conflict is raised."""
    try:
        engine.api.remove_volume(specs.name_of(instance, lender), force=True)
    except APIError as refused:
        if refused.status_code == HTTPStatus.CONFLICT:
            wanted = [f"{specs.LABEL_INSTANCE}={instance}", f"{specs.LABEL_BORROWS}={lender}"]
            for each in engine.api.containers(all=True, filters={"label": wanted}):
                engine.api.remove_container(each["Id"], force=True, v=True)
        raise
