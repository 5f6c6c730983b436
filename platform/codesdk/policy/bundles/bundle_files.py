"""Reads the texts of a bundle. A bundle is compiled from texts, whether they come from files or from the database."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from codesdk.documents import DocumentUnreadable, read_text
from codesdk.policy.faults import PolicyInvalid

MAX_FILES = 200
TESTS = "tests"
"""Folder with a bundle's tests."""
_SUFFIXES = (".yaml", ".yml")
_LOOKS_LIKE_RULES = re.compile(r"\.(ya?ml|json)", re.IGNORECASE)
_BACKUP = re.compile(r"(~|\.(bak|backup|disabled|old|orig|rej|save|sw[a-p]|tmp))$|^\.?#", re.IGNORECASE)
"""Copies and locks of editors, and files that were set aside on purpose; their rules are not meant to be in force."""
MAX_ENTRIES = 2000
"""Most files and folders below a bundle's directory."""

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
    unread = unread_files(directory)
    if unread:
        message = (
            "This file is not read, so its rules would not be in force. Rules are `*.yaml` or `*.yml` directly in the bundle's "
            "directory, without a dot in front. Move or rename it; end the name of a file to ignore with `.disabled`."
        )
        raise PolicyInvalid.of_all([PolicyInvalid(str(path), 1, 1, message) for path in unread])
    if not paths:
        raise PolicyInvalid(str(directory), 1, 1, "There is no policy file (`*.yaml`) in this directory.")
    if len(paths) > MAX_FILES:
        said = f"The directory has {len(paths)} policy files; the limit is {MAX_FILES}."
        raise PolicyInvalid(str(directory), 1, 1, said)
    return _read_all(paths)


def read_test_texts(directory: Path) -> dict[str, str]:
    """Read the files of the bundle's tests; empty if it has none.

    Raises:
        PolicyInvalid: one can't be read.
    """
    return {f"{TESTS}/{name}": text for name, text in _read_all(yaml_files(directory / TESTS)).items()}


def unread_files(directory: Path) -> list[Path]:
    """Return the files that look like rules or tests but would not be read: `deny.YAML`, `.deny.yaml`, `more/deny.yaml`.

    Copies of editors and hidden folders (`.git`; the data folders of a mounted ConfigMap) don't count.

    Raises:
        PolicyInvalid: a directory can't be read, or there are more than `MAX_ENTRIES` files.
    """
    read = {*yaml_files(directory), *yaml_files(directory / TESTS)}
    found, pending, seen = list[Path](), [directory], set[tuple[int, int]]()
    entries = 0
    while pending:
        folder = pending.pop()
        try:
            status = folder.stat()
            below = sorted(folder.iterdir())
        except OSError as error:
            raise _unreadable(folder, error) from error
        if (place := (status.st_dev, status.st_ino)) in seen:  # a link to a folder above
            continue
        seen.add(place)
        entries += len(below)
        if entries > MAX_ENTRIES:
            said = f"There are more than {MAX_ENTRIES} files below this directory; keep only policy in it."
            raise PolicyInvalid(str(directory), 1, 1, said)
        for path in below:
            if path in read:
                continue
            if path.is_dir():
                pending += [] if path.name.startswith(".") else [path]
            elif _LOOKS_LIKE_RULES.search(path.name) and not _BACKUP.search(path.name):
                found.append(path)
    return sorted(found)


def rule_texts(sources: BundleTexts) -> dict[str, str]:
    """Return the rule files, by name."""
    return {name: text for name, text in sources.items() if "/" not in name}


def test_texts(sources: BundleTexts) -> dict[str, str]:
    """Return the test files, by name."""
    return {name: text for name, text in sources.items() if name.startswith(f"{TESTS}/")}


def yaml_files(directory: Path) -> list[Path]:
    """Return the `*.yaml` and `*.yml` directly in `directory`, without hidden ones; none if it is not there."""
    try:
        found = sorted(directory.iterdir()) if directory.is_dir() else []
    except OSError as error:
        raise _unreadable(directory, error) from error
    return [path for path in found if path.suffix in _SUFFIXES and not path.name.startswith(".")]


def _unreadable(directory: Path, error: OSError) -> PolicyInvalid:
    return PolicyInvalid(str(directory), 1, 1, f"The directory cannot be read: {error.strerror or error}.")


def _read_all(paths: Iterable[Path]) -> dict[str, str]:
    """Read these files, and report all that can't be read."""
    texts, problems = dict[str, str](), list[PolicyInvalid]()
    for path in paths:
        try:
            texts[path.name] = read_text(path)
        except DocumentUnreadable as error:
            problems.append(PolicyInvalid.of(path, error))
    if problems:
        raise PolicyInvalid.of_all(problems)
    return texts
