"""Runs the log's tests on every kind of database."""

from __future__ import annotations

import pytest

from databases import EVERY


@pytest.fixture(params=EVERY)
def database_kind(request: pytest.FixtureRequest) -> str:
    """SQLite, PostgreSQL, memory."""
    return request.param
