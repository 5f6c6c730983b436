"""`codesdk policy schema` and `fmt`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from codesdk.cli.console.terminal import Printer
from codesdk.documents import DocumentUnreadable, format_yaml
from codesdk.errors import ExitCode
from codesdk.policy import PolicyInvalid, policy_schema


def print_schema() -> int:
    """Print the JSON Schema on stdout."""
    sys.stdout.write(json.dumps(policy_schema(), indent=2) + "\n")
    return ExitCode.OK


def format_files(paths: list[Path], *, check: bool) -> int:
    """Format the files that need it, each atomically.

    Raises:
        PolicyInvalid: a file can't be parsed; those before it are formatted.
    """
    printer = Printer()
    changed = [path for path in _files(paths) if _format_file(path, check=check)]
    for path in changed:
        printer.out.print(f"{'would change' if check else 'changed'} {path}", soft_wrap=True, markup=False)
    return ExitCode.FAILED if check and changed else ExitCode.OK


def _files(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        found += sorted([*path.rglob("*.yaml"), *path.rglob("*.yml")]) if path.is_dir() else [path]
    return found


def _format_file(path: Path, *, check: bool) -> bool:
    try:
        before = path.read_text(encoding="utf-8")
        after = format_yaml(before)
    except DocumentUnreadable as error:
        raise PolicyInvalid(str(path), error.place.line, error.place.column, error.message) from error
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyInvalid(str(path), 1, 1, f"The file cannot be read: {error}.") from error
    if after == before:
        return False
    if not check:
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(after, encoding="utf-8")
        fresh.chmod(path.stat().st_mode & 0o7777)
        fresh.replace(path)
    return True
