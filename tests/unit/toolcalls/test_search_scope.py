"""What workspace.search looks at: hidden files as far as policy lets it, and what it says that it left out."""

from __future__ import annotations

import json

import pytest

from builtin_stage import context, use
from codesdk.domain.search_globs import search_globs
from stage import Room, said


def search(given, *, allows=(), files=(".github/ci.yml", ".env", ".git/config", "src/a.py"), output=b""):
    room = Room(said(output))
    for path in files:
        room.files.put(path, b"needle\n")
    at = context(room, allows=lambda asked: (asked.get("path", "."), asked.get("hidden", False)) in allows)
    result = use("workspace.search", {"pattern": "needle", **given}, at)
    return result, room.requests[0].argv


def places(argv):
    return argv[argv.index("--") + 1 :]


def test_hidden_files_are_searched_where_policy_allows_it():
    result, argv = search({}, allows=[(".", True)])
    assert ("--hidden" in argv, "--glob=!.git" in argv, places(argv)) == (True, True, (".",))
    assert not any("hidden" in one for one in result.structured["left_out"])


def test_where_it_does_not_the_hidden_entries_that_it_allows_are_searched_and_the_rest_is_told():
    result, argv = search({}, allows=[(".github", False), (".git", False)])
    assert ("--hidden" in argv, places(argv)) == (False, (".", ".github"))
    assert "[left out: hidden files but .github (`hidden: true` searches them)" in result.text


def test_without_policy_no_hidden_file_is_searched():
    result, argv = search({})
    assert ("--hidden" in argv, places(argv)) == (False, (".",))
    assert "hidden files (`hidden: true` searches them)" in result.text


@pytest.mark.parametrize("hidden", [True, False])
def test_a_call_that_says_what_it_wants_gets_that(hidden):
    _, argv = search({"hidden": hidden}, allows=[(".", True), (".env", False)])
    assert ("--hidden" in argv, places(argv)) == (hidden, (".",))


def test_what_git_ignores_is_searched_on_request_only():
    result, argv = search({"ignored": True})
    assert "--no-ignore" in argv
    assert not any("ignores" in one for one in result.structured["left_out"])
    assert any("ignores" in one for one in search({})[0].structured["left_out"])


def record(kind, **data):
    return json.dumps({"type": kind, "data": data}).encode() + b"\n"


def test_a_binary_file_with_a_match_is_named_and_none_of_its_lines_shown():
    lines = {"text": "needle\n"}
    of = {"path": {"text": "src/a.py"}}
    output = record("match", **of, lines=lines, line_number=1, absolute_offset=0) + record("end", **of, binary_offset=9)
    result, _ = search({}, output=output + record("summary"))
    assert result.structured["matches"] == []
    assert "1 binary files with a match: src/a.py" in result.text


def test_files_that_cannot_be_read_are_counted_and_not_named():
    room = Room(said(record("summary"), ("stderr", b"rg: /etc/secret: denied\nrg: x: denied\n"), exit_code=2))
    room.files.put("a", b"")
    result = use("workspace.search", {"pattern": "x"}, context(room))
    assert (result.is_error, "/etc/secret" in result.text) == (False, False)
    assert "2 files or directories that can't be read" in result.text


@pytest.mark.parametrize(
    ("glob", "patterns"),
    [
        ("*.py", ("*.py",)),
        ("*.ts,*.tsx", ("*.ts", "*.tsx")),
        ("*.{ts,tsx}, !*.test.ts", ("*.{ts,tsx}", "!*.test.ts")),
        ("./src/*.py", ("src/*.py",)),
        ("src/", ("src/**",)),
        ("src", ("src", "src/**")),
        (".github", (".github", ".github/**")),
        ("!node_modules", ("!node_modules", "!node_modules/**")),
        ("Makefile,setup.py", ("Makefile", "Makefile/**", "setup.py")),
        ("a[,]b", ("a[,]b",)),
        (".", ()),
    ],
)
def test_a_glob_is_taken_as_people_mean_it(glob, patterns):
    assert search_globs(glob) == patterns
    _, argv = search({"glob": glob})
    assert tuple(word[7:] for word in argv if word.startswith("--glob=")) == patterns


def test_a_glob_with_a_directory_is_meant_from_the_searched_one_or_from_the_workspace():
    _, argv = search({"path": "src", "glob": "lib/*.py"})
    assert [word for word in argv if word.startswith("--glob=")] == ["--glob=lib/*.py", "--glob=src/lib/*.py"]


def test_a_file_that_policy_denies_to_read_leaves_no_trace():
    lines = {"text": "needle\n"}
    output = b"".join(
        record("match", path={"text": path}, lines=lines, line_number=1, absolute_offset=0)
        + record("end", path={"text": path}, binary_offset=9 if path == "c" else None)
        for path in ("./.env", "a", "b", "c")
    )
    room = Room(said(output + record("summary")))
    for path in (".env", "a", "b", "c"):
        room.files.put(path, b"needle\n")
    at = context(room, denies_read=lambda path: path in (".env", "b", "c"))
    result = use("workspace.search", {"pattern": "needle", "max_results": 1}, at)
    assert [match["path"] for match in result.structured["matches"]] == ["a"]
    assert (result.structured["truncated"], "left out:" in result.text) == (False, True)
    assert not {".env", "b", "c", "binary"} & set(result.text.replace(":", " ").split())
