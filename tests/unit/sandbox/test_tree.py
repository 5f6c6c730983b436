from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from codesdk.sandbox.runner.execution.process_tree import descendants, parents

TABLE = {10: (1, "S"), 11: (10, "R"), 12: (11, "Z"), 13: (12, "S"), 14: (1, "S"), 15: (14, "T")}


def test_descendants_are_all_beneath_without_the_root_and_without_zombies():
    assert sorted(descendants(10, TABLE)) == [11, 13]


def test_a_subtree_can_be_left_out():
    assert sorted(descendants(1, TABLE, excluding=10)) == [14, 15]


@given(st.dictionaries(st.integers(2, 30), st.tuples(st.integers(1, 30), st.sampled_from("RSTZ")), max_size=29))
def test_a_table_with_cycles_ends(table):
    """A scan is no snapshot: a pid may be used again while it is read."""
    found = descendants(1, table)
    assert len(found) == len(set(found))


def test_this_process_is_found_beneath_its_parent():
    assert os.getpid() in descendants(os.getppid(), parents())
