"""Shared fixtures of the provisioning tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def tmp_path(tmp_path_factory):
    """A directory with a short path: servers listen on sockets below it, and a socket's path has at most 107 bytes."""
    return tmp_path_factory.mktemp("p")
