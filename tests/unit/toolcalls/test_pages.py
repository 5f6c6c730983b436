"""Pages of large results: what an agent gets by default fits its client, and following `next` shows all."""

from __future__ import annotations

import json

import pytest

from builtin_stage import REGISTRY, context, output, use
from codesdk.domain.decisions import Redaction
from codesdk.domain.redaction import Redactor
from codesdk.tools import run_tool
from codesdk.tools.pages import PAGE_BYTES
from stage import Room, said

OUTPUT = "codesdk://artifacts/art_1"
TEXTS = {
    "short lines": "".join(f"{number}: some words of a line\n" for number in range(40_000)).encode(),
    "one long line": b"x" * 300_000,
    "a long line among others": b"a\nb\n" + b"x" * 100_000 + b"\nc\nd\n" + b"y" * 30_000,
    "quotes and controls": b'"\\\x01\x1b"\n' * 20_000,
    "three bytes a letter": "漢字\n".encode() * 20_000,
    "four bytes a letter, one line": "\U0001f600".encode() * 30_000,
    "no end of line": b"a\nb",
    "larger than one read": b"0123456789abcde\n" * 300_000,
}


def pages(given, at, most=100):
    """The results of a call and of all that `next` names."""
    found = []
    while given is not None and len(found) < most:
        found.append(use("workspace.read", given, at))
        assert not found[-1].is_error, found[-1]
        given = found[-1].structured.get("next")
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_the_pages_of_a_file_are_the_whole_file(name):
    room, text = Room(), TEXTS[name]
    room.files.put("a", text)
    found = pages({"path": "a"}, context(room), most=20)
    read = "".join(page.structured["content"] for page in found).encode()
    assert read == text[: len(read)]
    assert read == text or len(found) == 20
    for page in found:
        following = page.structured.get("next")
        assert following is None or page.text.endswith(f"; next page: workspace_read {json.dumps(following)}]")
    assert len(found) <= 3 + len(text) // 6000 or len(found) == 20


@pytest.mark.parametrize("name", ["short lines", "larger than one read", "a long line among others"])
def test_a_page_begins_at_the_line_that_is_named(name):
    room, lines = Room(), TEXTS[name].decode().split("\n")
    room.files.put("a", TEXTS[name])
    for line in (1, 2, 5, len(lines) - 3, len(lines) - 1):
        if line < len(lines):
            page = use("workspace.read", {"path": "a", "offset": line, "limit": 1}, context(room)).structured
            assert lines[line - 1].startswith(page["content"].rstrip("\n"))
            assert page["start_line"] == page["end_line"] == line


def test_a_page_from_the_middle_of_a_character_begins_with_the_next_one():
    room = Room()
    room.files.put("a", "é漢b".encode())
    contents = [
        use("workspace.read", {"path": "a", "byte_offset": skip}, context(room)).structured["content"]
        for skip in range(7)
    ]
    assert contents == ["é漢b", "漢b", "漢b", "b", "b", "b", ""]


def test_the_bytes_of_a_page_can_be_named():
    room = Room()
    room.files.put("a", b"x" * 500_000)
    page = use_large("workspace.read", {"path": "a", "max_bytes": 262_144}, context(room))
    assert len(page.structured["content"]) == 262_144
    assert page.structured["next"] == {"path": "a", "offset": 1, "byte_offset": 262_144, "max_bytes": 262_144}


def use_large(name, given, at):
    tool = REGISTRY.resolve(name)
    tool.check_input(given)
    return run_tool(tool, given, at)


def test_a_line_far_behind_says_how_to_get_there():
    room = Room()
    room.files.put("a", b"\n" * 70_000_000)
    assert use("workspace.read", {"path": "a", "offset": 69_000_000}, context(room)).code == "TOO_FAR"
    page = use("workspace.read", {"path": "a", "byte_offset": 69_000_000, "limit": 3}, context(room))
    assert (page.structured["content"], page.structured["start_line"]) == ("\n" * 3, None)


def test_no_page_of_a_redacted_file_begins_inside_a_secret():
    secret = "tok_" + "s" * 60
    room = Room()
    room.files.put("a", (f"{secret}\n" * 3000).encode())
    at = context(room, redactor=Redactor([Redaction(literal=secret)]))
    every = [use("workspace.read", {"path": "a", "byte_offset": skip}, at) for skip in range(100)]
    assert all("sss" not in page.text for page in (*every, *pages({"path": "a"}, at)))
    whole = "".join(page.structured["content"] for page in pages({"path": "a"}, at))
    assert whole == "[redacted]\n" * 3000


def test_a_whole_output_is_read_in_pages_by_its_address():
    data = b"".join(b"%d \xff\n" % number for number in range(20_000))
    at = context(Room(), find_output=output(data))
    whole = "".join(page.structured["content"] for page in pages({"path": OUTPUT}, at))
    assert whole == data.decode("utf-8", "replace")
    assert use("workspace.read", {"path": OUTPUT, "offset": 19_999}, at).structured["content"].startswith("19998 ")


def test_an_output_that_the_session_does_not_have_is_not_found():
    assert use("workspace.read", {"path": "codesdk://artifacts/art_2"}, context(Room())).code == "NOT_FOUND"


def test_the_pages_of_a_list_are_the_whole_directory_level_by_level():
    room = Room()
    for number in range(3000):
        room.files.put(f"a/file-with-a-longer-name-{number:05}", b"")
    room.files.put("b/c/d", b"")
    given, listed = {"depth": 3}, []
    while given is not None:
        page = use("workspace.list", given, context(room))
        listed += [entry["path"] for entry in page.structured["entries"]]
        given = page.structured.get("next")
    assert listed[:2] == ["a", "b"]
    assert (listed[2], listed[-2:]) == ("a/file-with-a-longer-name-00000", ["b/c", "b/c/d"])
    assert len(listed) == len(set(listed)) == 3004
    assert page.text.endswith("that is the end]")


def test_a_list_is_narrowed_by_a_glob_and_says_when_nothing_matches():
    room = Room()
    for path in ("src/a.py", "src/b.ts", "c.py"):
        room.files.put(path, b"")
    listed = use("workspace.list", {"depth": 5, "glob": "*.py"}, context(room))
    assert listed.text == "c.py\nsrc/a.py"
    assert "matches *.rs" in use("workspace.list", {"glob": "*.rs"}, context(room)).text


def match(number):
    lines = {"text": "x" * 400 + "\n"}
    data = {"path": {"text": "a"}, "lines": lines, "line_number": number + 1, "absolute_offset": 401 * number}
    return json.dumps({"type": "match", "data": data}).encode() + b"\n"


def test_the_pages_of_a_search_are_all_matches():
    room = Room(said(b"".join(map(match, range(120)))))
    room.files.put("a", (b"x" * 400 + b"\n") * 120)
    given, found = {"pattern": "x", "max_results": 70}, []
    while given is not None:
        page = use("workspace.search", given, context(room))
        found += [one["line"] for one in page.structured["matches"]]
        given = page.structured.get("next")
    assert found == list(range(1, 121))


@pytest.mark.parametrize("piece", [b"x", b"\x1b[0m\n", "漢".encode(), b"\xff", b'"\\'])
def test_a_command_that_prints_much_on_both_streams_fits_a_page(piece):
    room = Room(said(piece * 50_000, ("stderr", piece * 50_000)))
    result = use("workspace.exec", {"command": "x"}, context(room))
    assert result.structured["truncated"]
    assert piece == b"\xff" or min(result.stdout.shown, result.stderr.shown) > 1000


def test_a_stream_that_prints_little_leaves_its_part_to_the_other():
    room = Room(said(b"x" * 100_000, ("stderr", b"e")))
    result = use("workspace.exec", {"command": "x"}, context(room))
    assert result.stdout.shown > 18_000
    assert result.structured["stderr"] == "e"


def test_a_page_leaves_room_below_what_clients_take():
    assert PAGE_BYTES <= 50_000
