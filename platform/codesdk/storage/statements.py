"""Statements that every call runs are built once, and in a form that SQLAlchemy need not expand at each run."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import ColumnElement, literal


def in_list(column: ColumnElement[str], values: Iterable[str]) -> ColumnElement[bool]:
    """`column IN (…)` with as many places as there are values now.

    A list of plain values is expanded, and so compiled in part, each time that the statement is run.
    """
    return column.in_([literal(str(value)) for value in values])
