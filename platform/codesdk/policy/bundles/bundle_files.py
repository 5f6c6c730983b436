"""Reads the texts of a bundle. A bundle is compiled from texts, whether they come from files or from the database."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from codesdk.documents import DocumentUnreadable, read_text
from codesdk.policy.faults import PolicyInvalid

MAX_FILES = 200
TESTS = "tests"
"""Folder with a bundle's tests."""
_SUFFIXES = (".yaml", ".yml")
_LOOKS_LIKE_RULES = (*_SUFFIXES, ".json")

BundleTexts = Mapping[str, str]
"""Texts by file name: `policy.yaml` or `tests/policy.yaml`."""


def read_bundle_texts(directory: Path) -> dict[str, str]:
    """Read all `*.yaml` and `*.yml` directly in `directory`.

    Raises:
        PolicyInvalid: there are none or too many, one can't be read, or a file looks like rules and would not be read.
    """
    if not directory.is_dir():
        raise PolicyInvalid(str(directory), 1, 1, "There is no such directory.")
    paths = yaml_files(directory)
    for path in unread_files(directory):
        message = "This file is not read, so its rules would not be in force. Rules are `*.yaml` or `*.yml` directly in the bundle's directory."
        raise PolicyInvalid(str(path), 1, 1, message)
    if not paths:
        raise PolicyInvalid(str(directory), 1, 1, "There is no policy file (`*.yaml`) in this directory.")
    if len(paths) > MAX_FILES:
        said = f"The directory has {len(paths)} policy files; the limit is {MAX_FILES}."
        raise PolicyInvalid(str(directory), 1, 1, said)
    return {path.name: _read(path) for path in paths}


def read_test_texts(directory: Path) -> dict[str, str]:
    """Read the files of the bundle's tests; empty if it has none.

    Raises:
        PolicyInvalid: one can't be read.
    """
    return {f"{TESTS}/{path.name}": _read(path) for path in yaml_files(directory / TESTS)}


def unread_files(directory: Path) -> list[Path]:
    """Return the files that look like rules or tests but are in the wrong place or have another suffix: `deny.YAML`."""
    try:
        entries = sorted(directory.iterdir())
        below = [
            path
            for entry in entries
            if entry.is_dir() and not entry.name.startswith(".")
            for path in sorted(entry.iterdir())
            if entry.name != TESTS or path.suffix not in _SUFFIXES
        ]
    except OSError as error:
        raise PolicyInvalid(
            str(directory), 1, 1, f"The directory cannot be read: {error.strerror or error}."
        ) from error
    beside = [entry for entry in entries if entry.suffix not in _SUFFIXES]
    return [path for path in (*beside, *below) if path.suffix.lower() in _LOOKS_LIKE_RULES and path.is_file()]


def rule_texts(sources: BundleTexts) -> dict[str, str]:
    """Return the rule files, by name."""
    return {name: text for name, text in sources.items() if "/" not in name}


def test_texts(sources: BundleTexts) -> dict[str, str]:
    """Return the test files, by name."""
    return {name: text for name, text in sources.items() if name.startswith(f"{TESTS}/")}


def yaml_files(directory: Path) -> list[Path]:
    """Return the `*.yaml` and `*.yml` directly in `directory`; none if it is not there."""
    try:
        return sorted(directory.glob("*.yaml")) + sorted(directory.glob("*.yml")) if directory.is_dir() else []
    except OSError as error:
        raise PolicyInvalid(
            str(directory), 1, 1, f"The directory cannot be read: {error.strerror or error}."
        ) from error


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except DocumentUnreadable as error:
        raise PolicyInvalid.of(path, error) from error
