"""Print the coverage by branch of each package, from the .coverage of the last run; fail below the floor.

The floor is `fail_under` of [tool.coverage.report] in pyproject.toml: percent of lines and branches of the whole.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "platform" / "codesdk"


def percent(covered: int, of: int) -> float:
    """Return the percentage; 100 if there is nothing to cover."""
    return 100.0 if not of else 100.0 * covered / of


def package_of(file: Path) -> str:
    """Return `codesdk.toolcalls` for files in that folder, and `codesdk` for a module outside the packages."""
    inner = file.relative_to(PACKAGE).parts
    return f"codesdk.{inner[0]}" if len(inner) > 1 else "codesdk"


def main() -> int:
    """Print the table; return 1 if the total is below the floor."""
    measured = Coverage(config_file=str(ROOT / "pyproject.toml"))
    measured.load()
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "coverage.json"
        measured.json_report(outfile=str(out), morfs=None)
        files = json.loads(out.read_text(encoding="utf-8"))["files"]
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for name, data in files.items():
        found = data["summary"]
        counts = (found["covered_lines"], found["num_statements"], found["covered_branches"], found["num_branches"])
        for each in (package_of(ROOT / name), "all"):
            sums[each] = [a + b for a, b in zip(sums[each], counts, strict=True)]
    table = io.StringIO()
    whole = 0.0
    for package in [*sorted(set(sums) - {"all"}), "all"]:
        lines, of_lines, branches, of_branches = sums[package]
        whole = percent(lines + branches, of_lines + of_branches)
        table.write(
            f"{package:24} {percent(lines, of_lines):6.1f} % of lines {percent(branches, of_branches):6.1f} % of branches\n"
        )
    floor = float(measured.get_option("report:fail_under") or 0)
    table.write(f"Lines and branches: {whole:.1f} %, floor {floor:g} %\n")
    sys.stdout.write(table.getvalue())
    return 0 if whole >= floor else 1


if __name__ == "__main__":
    sys.exit(main())
