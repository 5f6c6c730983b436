"""Every example of every shipped manifest runs on a real sandbox and gives the documented output."""

from __future__ import annotations

import pytest

from codesdk.registry import Registry
from stage import REPOSITORY
from tool_bench import run_example

pytestmark = pytest.mark.engine
REGISTRY = Registry.load(REPOSITORY / "tool-registry")
EXAMPLES = [
    pytest.param(tool, example, id=f"{tool.name}-{number}")
    for tool in REGISTRY.tools()
    # Run in test_fetch.py with a server, and in test_background.py with a process.
    if tool.name not in ("http.fetch", "process.read", "process.signal")
    for number, example in enumerate(tool.examples, start=1)
]


@pytest.mark.parametrize(("tool", "example"), EXAMPLES)
def test_an_example_of_a_shipped_manifest_runs_as_it_says(tool, example, sandbox):
    run_example(tool, example, sandbox)
