"""Runs races on both kinds of database, which order them."""

from __future__ import annotations

import pytest

from databases import BOTH


@pytest.fixture(params=BOTH)
def database_kind(request: pytest.FixtureRequest) -> str:
    """SQLite, then PostgreSQL."""
    return request.param
