"""Everything that the documentation names exists: links, commands, settings, events, routes, exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import typer.main

from codesdk.api.access import ROUTE_RULES
from codesdk.cli.app import app
from codesdk.errors import ExitCode
from codesdk.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "acceptance" / "README.md"])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
COMMAND = re.compile(r"(?<![\w/.-])(?:\.venv/bin/)?codesdk (?=[a-z])([^`#\n]+)")
VARIABLE = re.compile(r"\bCODESDK_[A-Z_]+\b")
ELSEWHERE = {"CODESDK_CACHE", "CODESDK_DEBUG", "CODESDK_CREDENTIALS_DIR", "CODESDK_TOKEN", "CODESDK_URL"} | {
    "CODESDK_CLIENT_WAIT_S",
    "CODESDK_API_URL",
    "CODESDK_API_KEY",
}
"""Variables that are no settings; each must be read somewhere in the source."""
COMMANDS = typer.main.get_command(app).commands


def wrong(check: Callable[[Path, str], Iterator[str]]) -> list[str]:
    """All that a check finds on all pages, a line each."""
    return [f"{page.relative_to(ROOT)}: {found}" for page in PAGES for found in check(page, page.read_text())]


def anchors(text: str) -> set[str]:
    """What a code host makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def first_column(text: str) -> list[str]:
    """The code spans in the first cells of all tables."""
    cells = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]


def broken_links(page: Path, text: str) -> Iterator[str]:
    for target in LINK.findall(CODE.sub("", text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        if not place.exists():
            yield f"{target} leads nowhere"
        elif not place.is_relative_to(ROOT):
            yield f"{target} leads out of the repository"
        elif anchor and anchor not in anchors(place.read_text()):
            yield f"{target} has no such heading"


def test_every_relative_link_resolves():
    assert wrong(broken_links) == []


def impossible_commands(_page: Path, text: str) -> Iterator[str]:
    for span in CODE.findall(text):
        for line in COMMAND.findall(span):
            if reason := impossible(line.split()):
                yield f"codesdk {line}: {reason}"


def impossible(words: list[str]) -> str:
    """Why the command line can not be given; empty where it can."""
    command = COMMANDS
    while words and isinstance(command, dict):
        name = words.pop(0)
        if name not in command:
            return f"there is no {name}"
        command = getattr(command[name], "commands", command[name])
    if isinstance(command, dict):
        return ""  # a group, named without its command
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    options = [word for word in words if re.fullmatch(r"--?[a-z-]+", word)]
    if not set(options) <= known:
        return "an option that it does not have"
    plain = words[: words.index(options[0])] if options else words
    wanted = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    most = float("inf") if any(parameter.nargs == -1 for parameter in wanted) else len(wanted)
    return "more arguments than it takes" if len(plain) > most else ""


def test_every_command_that_is_named_exists_with_its_options():
    assert wrong(impossible_commands) == []


def test_every_page_is_in_the_index_or_a_decision_record():
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        name = str(page.relative_to(ROOT / "docs"))
        assert name == "README.md" or name.startswith("adr/") or f"({name})" in index, (
            f"{name} is not in docs/README.md"
        )


def test_each_decision_record_has_a_number_of_its_own():
    # Numbers are given when the work begins, so one may be missing for a while.
    numbers = [path.name[:4] for path in (ROOT / "docs" / "adr").glob("*.md")]
    assert all(number.isdecimal() for number in numbers)
    assert len(set(numbers)) == len(numbers)


def test_every_variable_that_is_named_exists():
    known = {f"CODESDK_{name.upper()}" for name in Settings.model_fields} | ELSEWHERE
    assert wrong(lambda _page, text: (name for name in VARIABLE.findall(text) if name not in known)) == []


def test_variables_that_are_no_settings_are_read_somewhere():
    places = [*(ROOT / "platform").rglob("*.py"), *(ROOT / "tests" / "acceptance").rglob("*.py")]
    source = "\n".join(path.read_text() for path in places)
    assert {name for name in ELSEWHERE if name not in source} == set()


def test_every_setting_is_in_the_reference():
    named = first_column((REFERENCE / "settings.md").read_text())
    assert named == [f"CODESDK_{name.upper()}" for name in Settings.model_fields]


def test_the_reference_has_exactly_the_routes_of_the_api():
    named = set(first_column((REFERENCE / "http-api.md").read_text()))
    assert named == {path if method == "*" else f"{method} {path}" for method, path in ROUTE_RULES}


def test_the_reference_has_every_exit_code():
    cells = re.findall(r"^\| (\d+) \|", (REFERENCE / "cli.md").read_text(), re.MULTILINE)
    assert {int(code) for code in ExitCode} <= {int(cell) for cell in cells}


def test_the_reference_has_every_command():
    text = (REFERENCE / "cli.md").read_text()
    for name, command in COMMANDS.items():
        for path in [f"{name} {inner}" for inner in getattr(command, "commands", {})] or [name]:
            assert f"`codesdk {path}`" in text, f"codesdk {path} is missing"


def test_the_architecture_page_has_every_package():
    section = (ROOT / "docs" / "architecture.md").read_text().partition("## Packages")[2].partition("\n## ")[0]
    packages = {path.parent.name for path in (ROOT / "platform" / "codesdk").glob("*/__init__.py")}
    assert set(first_column(section)) == packages


def test_every_status_of_an_mcp_answer_is_in_the_reference():
    source = (ROOT / "platform" / "codesdk" / "mcphost" / "tool_calls" / "answers.py").read_text()
    written = set(re.findall(r'"status": "(\w+)"', source)) | {"failed", "completed"}
    assert written <= set(first_column((REFERENCE / "tools.md").read_text()))


def test_the_page_on_manifests_names_every_key_and_no_other():
    schema = json.loads((ROOT / "tool-registry" / "manifest.schema.json").read_text())
    keys = {name for model in (schema, *schema["$defs"].values()) for name in model.get("properties", {})}
    page = (ROOT / "docs" / "reference" / "manifests.md").read_text()
    rows = set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE))
    assert rows == keys - {"builtin", "runs"} | {"runs"}
    assert "{builtin: " in page


def test_the_page_on_sources_names_every_key():
    keys = set(json.loads((ROOT / "tool-registry" / "source.schema.json").read_text())["properties"])
    assert keys <= set(first_column((REFERENCE / "sources.md").read_text()))
