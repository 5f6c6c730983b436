"""What all tables share: their metadata, the names of constraints, the type of ids."""

from __future__ import annotations

from typing import Any

from sqlalchemy import MetaData, String, text

_NAMES = {kind: f"{kind}_%(table_name)s_%(column_0_name)s" for kind in ("ix", "uq")}
_NAMES |= {"fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s", "pk": "pk_%(table_name)s"}
metadata = MetaData(naming_convention=_NAMES)

ID = String(40)


def where(condition: str) -> dict[str, Any]:
    """Options of an index that covers only the rows with that condition."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}
