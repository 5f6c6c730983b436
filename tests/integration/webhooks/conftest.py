"""The whole API with a fake worker, sending to receivers on loopback."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_API = Path(__file__).resolve().parent.parent / "api" / "conftest.py"


def _api() -> Any:
    spec = importlib.util.spec_from_file_location("api_stack", _API)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def api() -> Any:
    """The helpers of the API's tests."""
    return _api()


@pytest.fixture(scope="module")
def sending(api, tmp_path_factory) -> Iterator[Any]:
    """A stack that may send to this machine over http."""
    root = tmp_path_factory.mktemp("sending")
    with api.running(root, 10.0, webhook_networks="127.0.0.0/8", webhook_allow_http=True) as stack:
        yield stack
