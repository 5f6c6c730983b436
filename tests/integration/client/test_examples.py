"""Every example for app developers, as the pages print it: Python in processes of their own, curl in a shell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.full

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLE_S = 240


def blocks(page: str, language: str) -> list[str]:
    """The page's blocks of that language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


TUTORIAL = blocks("tutorial/first-app.md", "python")
HOW_TO = blocks("how-to/embed-in-an-app.md", "python")
CURL = blocks("how-to/run-commands-over-http.md", "sh")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "readme.txt").write_text("hello\n")
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "CODESDK_DATA_DIR": str(place / "data"), "CODESDK_LOCAL_SANDBOX": "plain"}


def run(example: str, place: Path) -> str:
    """What the program prints. Its errors fail the test."""
    argv = [sys.executable, "-W", "error", "-c", example]
    done = subprocess.run(
        argv, cwd=place / "work", env=environment(place), capture_output=True, text=True, timeout=EXAMPLE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def daemon(place: Path) -> Iterator[dict[str, Any]]:
    argv = [sys.executable, "-m", "codesdk.cli.stack.daemon", "--port", "0", "--policies", "sandbox"]
    with (place / "progress").open("w") as progress:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=progress, text=True, env=environment(place))
    assert process.stdout is not None
    try:
        with process.stdout as out:
            line = out.readline()
        assert line, (place / "progress").read_text()
        yield json.loads(line)
    finally:
        process.terminate()
        process.wait(EXAMPLE_S)


def test_the_tutorial_prints_what_it_promises(place: Path) -> None:
    command, files, rules, record = (run(example, place) for example in TUTORIAL)
    assert command.startswith("3 hello from ")
    assert "1\n" in files
    assert (place / "work" / "notes-from-the-sandbox" / "today.txt").read_text() == "one\n"
    assert "asked: {'command': 'git push origin main'}" in rules
    assert "True " in rules
    assert " session.created" in record
    assert record.strip().endswith("sandbox.session_closed")


def test_the_examples_of_the_how_to_run_against_a_daemon(place: Path, daemon: dict[str, Any]) -> None:
    together, later = (run(example, place) for example in HOW_TO)
    assert "['0', '1', '2', '3']" in together
    assert later.strip() == "done"


def test_the_curl_examples_run(place: Path, daemon: dict[str, Any]) -> None:
    known = {"URL": daemon["url"], "KEY": daemon["key"]}
    opened, called, followed = CURL

    def curl(example: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", example],
            env={**os.environ, **known},
            capture_output=True,
            text=True,
            timeout=EXAMPLE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    known["SESSION"] = json.loads(curl(opened))["session"]["id"]
    answer = json.loads(curl(called))
    assert (answer["state"], answer["result"]["structured"]["stdout"]) == ("completed", "hello\n")
    assert json.loads(curl(called))["tool_call_id"] == answer["tool_call_id"]
    known["CALL"] = answer["tool_call_id"]
    stream = curl(followed)
    assert '"type":"tool.output.delta"' in stream
    assert stream.rstrip().splitlines()[-1].startswith("data: ")
