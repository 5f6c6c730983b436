"""The artifacts' statements."""

from __future__ import annotations

from sqlalchemy import Connection, select
from sqlalchemy import insert as insert_into

from codesdk.domain.records import Artifact
from codesdk.storage.schema import artifacts


def insert(connection: Connection, artifact: Artifact, created_at: float) -> None:
    """Add the record."""
    connection.execute(insert_into(artifacts), {**artifact.model_dump(), "created_at": created_at})


def find(connection: Connection, tenant: str, artifact: str) -> Artifact | None:
    """The tenant's artifact of that id; another tenant's does not exist for this one."""
    row = connection.execute(
        select(artifacts).where(artifacts.c.id == artifact, artifacts.c.tenant_id == tenant)
    ).one_or_none()
    if row is None:
        return None
    fields = Artifact.model_fields
    return Artifact.model_validate({name: value for name, value in row._asdict().items() if name in fields})
