"""Everything that tests/suite.py names exists, and its rules match CONTRIBUTING.md."""

from __future__ import annotations

from pathlib import Path

import suite

ROOT = Path(__file__).resolve().parents[2]


def test_all_that_the_split_of_the_suite_names_is_there():
    named = {*suite.FULL, *suite.POSTGRESQL, *suite.EACH_BY_PARAMETER, *suite.LAST}
    named |= {place for place, *_ in (*suite.FULL_PARAMETERS, *suite.TOGETHER)}
    assert sorted(place for place in named if not (ROOT / place).exists()) == []


def test_a_module_left_to_the_rest_is_full():
    assert suite.is_full("tests/soak/test_chaos.py", {})
    assert not suite.is_full("tests/soak/test_verdict.py", {})


def test_a_second_database_is_full_but_where_sql_is_held():
    assert suite.is_full("tests/unit/cli/test_replay.py", {"database_kind": "postgresql"})
    assert not suite.is_full("tests/unit/cli/test_replay.py", {"database_kind": "sqlite"})
    assert not suite.is_full("tests/unit/storage/test_writer.py", {"database_kind": "postgresql"})


def test_a_second_runtime_is_full():
    assert suite.is_full("tests/contract/test_sandboxes.py", {"world": "runsc"})
    assert not suite.is_full("tests/contract/test_sandboxes.py", {"world": "docker"})


def test_a_module_is_run_by_one_worker_and_a_contract_by_one_for_each_implementation():
    assert suite.group_of("tests/unit/a/test_b.py::test_c[d-e::f]") == "tests/unit/a/test_b.py"
    contract = "tests/contract/test_sandboxes.py"
    assert suite.group_of(f"{contract}::test_a[docker-b]") == f"{contract}[docker]"
    assert suite.group_of(f"{contract}::test_a[runsc]") == f"{contract}[runsc]"
    assert suite.group_of("tests/soak/test_chaos.py::test_a") == suite.group_of("tests/soak/test_soak.py::test_a")
