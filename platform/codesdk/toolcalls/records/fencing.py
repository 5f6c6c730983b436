"""Which worker a running call belongs to."""

from __future__ import annotations

from sqlalchemy import BindParameter, ColumnElement, Integer, and_, exists, literal, or_

from codesdk.storage.schema import hosts, tool_calls

UNOWNED = 0
"""The generation of what no worker holds any more, since theirs begin with 1: it ends with its session."""


def owned_by(generation: int | BindParameter[int]) -> ColumnElement[bool]:
    """Whether the call is that generation's, and its host still is.

    A worker that was frozen and is replaced writes nothing from then on, whether or not its successor has come to this
    call yet.
    """
    given = literal(generation, Integer) if isinstance(generation, int) else generation
    still = exists().where(hosts.c.id == tool_calls.c.host_id, hosts.c.generation == given)
    return and_(tool_calls.c.generation == given, or_(given == UNOWNED, still))
