"""The long soak runs only on request (`-m soak`, `make soak`)."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if "soak" in config.option.markexpr:
        return
    long = [item for item in items if item.path.is_relative_to(HERE) and item.get_closest_marker("soak")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
