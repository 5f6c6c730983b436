from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from codesdk.sandbox.packaging.bundle import source as source_of
from codesdk.sandbox.packaging.minify import parse_module


@pytest.fixture
def busy_collector():
    """Garbage is collected all the time, and each collection lets another thread go on, as a finalizer may."""

    def give_way(_phase, _info):
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(20)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(give_way)


def test_threads_that_parse_at_once_each_have_their_tree(busy_collector):
    source = source_of("workspace.pack")
    with ThreadPoolExecutor(4) as threads:
        trees = list(threads.map(lambda _: parse_module(source), range(24)))
    assert len({len(tree.body) for tree in trees}) == 1


def test_what_is_none_of_python_says_so():
    with pytest.raises(SyntaxError):
        parse_module("def (")
