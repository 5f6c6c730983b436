"""The statements of rates, and of questions that wait. Times are the database's, so that several processes count on one clock."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, Float, bindparam, delete, func, select
from sqlalchemy import insert as insert_into

from codesdk.domain.calls import CallState
from codesdk.domain.decisions import Rate
from codesdk.domain.ids import SessionId
from codesdk.storage.database import database_now
from codesdk.storage.schema import rate_uses, tool_calls


class RateKey(NamedTuple):
    """What is counted together."""

    rule: str
    owner: str
    """Id of the session, principal or tenant."""


_OF_KEY = (rate_uses.c.rule == bindparam("sought_rule")) & (rate_uses.c.owner == bindparam("sought_owner"))
_WINDOW_START = database_now() - bindparam("per", type_=Float)
# The call that has to leave the window before there is room again: of the newest `calls` the oldest.
_WAIT = (
    select((rate_uses.c.at - _WINDOW_START).label("wait_s"))
    .where(_OF_KEY, rate_uses.c.at > _WINDOW_START)
    .order_by(rate_uses.c.at.desc())
    .limit(1)
    .offset(bindparam("before"))
)
_DELETE_EXPIRED = delete(rate_uses).where(_OF_KEY, rate_uses.c.at <= _WINDOW_START)
_INSERT = insert_into(rate_uses).values(at=database_now())
_WAITING = select(func.count()).where(
    tool_calls.c.session_id == bindparam("session"), tool_calls.c.state == CallState.WAITING.value
)


def wait_s(connection: Connection, key: RateKey, rate: Rate) -> float | None:
    """Seconds until one more may pass; None where it may now."""
    found = connection.execute(_WAIT, {**_parameters(key, rate), "before": rate.calls - 1}).scalar()
    return None if found is None else max(0.0, float(found))


def count(connection: Connection, key: RateKey, rate: Rate, call: str) -> None:
    """Add one, and let go of what the window has left behind."""
    connection.execute(_DELETE_EXPIRED, _parameters(key, rate))
    connection.execute(_INSERT, {"rule": key.rule, "owner": key.owner, "call_id": call})


def forget(connection: Connection, owner: str) -> None:
    """Remove all that was counted for a session that has ended."""
    connection.execute(delete(rate_uses).where(rate_uses.c.owner == owner))


def _parameters(key: RateKey, rate: Rate) -> dict[str, object]:
    return {"sought_rule": key.rule, "sought_owner": key.owner, "per": float(rate.per)}


def count_waiting(connection: Connection, session: SessionId) -> int:
    """How many of its calls wait for people."""
    return int(connection.execute(_WAITING, {"session": session}).scalar_one())
