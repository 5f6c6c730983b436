from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
LOCK = (ROOT / "requirements.lock").read_text()
PINNED = re.findall(
    r"^([a-z0-9][a-z0-9._-]*)==\S+(?: ; [^\\\n]*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
    LOCK,
    re.MULTILINE,
)


def test_the_lock_holds_no_address():
    assert not re.search(r"://|index-url|find-links|trusted-host", LOCK)


def test_every_requirement_is_pinned_with_hashes():
    requirements = [line for line in LOCK.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(PINNED) == len(requirements)


def test_the_lock_covers_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["embedded"],
        *project["dependency-groups"]["dev"],
    ]
    names = {normal(re.match(r"[A-Za-z0-9._-]+", requirement).group()) for requirement in asked}
    assert names <= {normal(name) for name, _ in PINNED}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()
