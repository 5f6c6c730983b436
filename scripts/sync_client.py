"""Generates the synchronous client from the asynchronous one. `--check` fails if the files differ.

Run as `python scripts/sync_client.py [--check]` from the repository's root, in its environment.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path("platform/codesdk/client/aio")
TARGET = Path("platform/codesdk/client/sync")
HEADER = "# Generated from codesdk.client.aio by scripts/sync_client.py. Do not edit.\n"
REPLACEMENTS = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync(Client|Session|Transport|OnOutput|OnApproval|Files|WaitForCall)\b", r"\1"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAwaitable\[([^\]]*)\] \| ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"Awaitable, ", ""),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b__a(enter|exit|iter)__\b", r"__\1__"),
    (r"\ba(read|close|iter_bytes|iter_raw)\(", r"\1("),
    (r"codesdk\.client\.aio\b", "codesdk.client.sync"),
)


def generate(source: str) -> str:
    """The synchronous form of a module."""
    for pattern, replacement in REPLACEMENTS:
        source = re.sub(pattern, replacement, source)
    return _formatted(HEADER + source)


def _formatted(source: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        name = ["--stdin-filename", str(TARGET / "generated.py"), "-"]
        source = subprocess.run(
            [*ruff, *command, *name], input=source, text=True, check=True, capture_output=True
        ).stdout
    return source


def main() -> int:
    """Write the files, or with `--check` compare them."""
    check = "--check" in sys.argv[1:]
    differs = []
    for module in sorted(SOURCE.glob("*.py")):
        if module.name in ("__init__.py", "concurrency.py"):
            continue
        target, text = TARGET / module.name, generate(module.read_text())
        if target.exists() and target.read_text() == text:
            continue
        differs.append(str(target))
        if not check:
            target.write_text(text)
    if differs:
        print(f"{'differs' if check else 'written'}: {', '.join(differs)}")  # noqa: T201 (its output)
    return 1 if check and differs else 0


if __name__ == "__main__":
    sys.exit(main())
