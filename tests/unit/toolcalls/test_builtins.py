from __future__ import annotations

import base64
import codecs
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.calls import CallIdentity
from codesdk.domain.ids import ToolCallId
from codesdk.registry import Registry
from codesdk.sandbox.egress.rules import DENY_ALL, EgressRules
from codesdk.sandbox.port import ExecResult, ExitKind
from codesdk.sandbox.profiles.profile import Profile
from codesdk.tools import ToolContext, run_tool
from stage import REPOSITORY, Room, said

REGISTRY = Registry.load(REPOSITORY / "tool-registry")
IDENTITY = CallIdentity(tool_call_id=ToolCallId("call_1"), input_hash="sha256:0")


def bench(room=None):
    return ToolContext(
        sandbox=room or Room(), profile=Profile(), identity=IDENTITY, timeout_s=30.0, on_output=lambda _chunk: None
    )


def use(name, given, room=None):
    """Run a tool, holding it to its manifest as the worker does."""
    tool = REGISTRY.resolve(name)
    tool.check_input(given)
    result = run_tool(tool, given, bench(room))
    if result.structured is not None and not result.is_error:
        tool.check_output(result.structured)
    return result


def content(room):
    return {entry.path: room.files.read(entry.path).data for entry in room.files.list(".").entries}


@pytest.fixture
def room():
    return Room()


def test_a_file_is_read_whole(room):
    room.files.put("a", b"one\ntwo\n")
    result = use("workspace.read", {"path": "a"}, room)
    assert result.text == result.structured["content"] == "one\ntwo\n"
    assert (result.structured["start_line"], result.structured["end_line"], result.structured["total_lines"]) == (
        1,
        2,
        2,
    )
    assert not result.structured["truncated"]


def test_an_empty_file_has_no_line(room):
    room.files.put("a", b"")
    result = use("workspace.read", {"path": "a"}, room)
    assert (result.structured["start_line"], result.structured["end_line"], result.structured["total_lines"]) == (
        0,
        0,
        0,
    )


def test_lines_of_a_file_are_read_and_said(room):
    room.files.put("a", b"".join(b"%d\n" % number for number in range(1, 11)))
    result = use("workspace.read", {"path": "a", "offset": 3, "limit": 2}, room)
    assert result.structured["content"] == "3\n4\n"
    assert result.text.endswith('[lines 3-4 of 10; next page: workspace_read {"path": "a", "offset": 5, "limit": 2}]')
    assert result.structured["truncated"]


def test_reading_after_the_end_says_so(room):
    room.files.put("a", b"1\n2\n")
    result = use("workspace.read", {"path": "a", "offset": 9}, room)
    assert "after the end" in result.text
    assert result.structured["content"] == ""


def test_lines_are_counted_as_editors_and_ripgrep_count_them(room):
    room.files.put("a", "one\x0c still\u2028one\ntwo\n".encode())
    assert use("workspace.read", {"path": "a"}, room).structured["total_lines"] == 2


def test_a_file_too_large_to_read_at_once_is_cut_at_a_character_and_says_how_to_go_on():
    room = Room(profile=Profile(max_read_bytes=1025))
    room.files.put("a", ("é" * 1000).encode())
    result = run_tool(
        REGISTRY.resolve("workspace.read"), {"path": "a"}, replace(bench(room), profile=Profile(max_read_bytes=1025))
    )
    assert result.structured["content"] == "é" * 512
    assert result.structured["next"] == {"path": "a", "offset": 1, "byte_offset": 1024}
    assert "bytes 0-1024 of 2000 bytes" in result.text


def test_a_file_that_is_no_text_is_refused(room):
    room.files.put("a", b"\xff\xfe\x00")
    assert use("workspace.read", {"path": "a"}, room).code == "NOT_TEXT"


@pytest.mark.parametrize(("name", "given"), [("workspace.read", {"path": "no"})])
def test_a_file_that_is_not_there_is_an_error_for_the_model(name, given, room):
    result = use(name, given, room)
    assert (result.is_error, result.code) == (True, "NOT_FOUND")
    assert "no" in result.text


def test_a_file_is_written_and_said_to_be_new_or_not(room):
    first = use("workspace.write", {"path": "a", "content": "é"}, room)
    second = use("workspace.write", {"path": "a", "content": ""}, room)
    assert (first.structured["created"], first.structured["bytes"]) == (True, 2)
    assert (second.structured["created"], second.structured["bytes"]) == (False, 0)
    assert content(room) == {"a": b""}


def test_a_directory_is_listed(room):
    room.files.put("a", b"1")
    room.files.put("b", b"22")
    result = use("workspace.list", {}, room)
    assert result.text == "a\nb"
    assert [entry["size"] for entry in result.structured["entries"]] == [1, 2]
    assert use("workspace.list", {}, Room()).text == ". is empty."


def test_a_patch_changes_all_files_or_none(room):
    room.files.put("a", b"1\n")
    room.files.put("b", b"2\n")
    good = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+one\n"
    bad = "--- a/b\n+++ b/b\n@@ -1 +1 @@\n-9\n+nine\n"
    result = use("patch.apply", {"patch": good + bad}, room)
    assert (result.is_error, result.code) == (True, "PATCH_REJECTED")
    assert "Nothing was changed" in result.text
    assert content(room) == {"a": b"1\n", "b": b"2\n"}
    assert not use("patch.apply", {"patch": good}, room).is_error
    assert content(room)["a"] == b"one\n"


def test_a_patch_lands_only_on_what_was_read(room):
    room.files.put("a", b"1\n")
    read = room.files.read

    def read_then_change(path, **more):
        content = read(path, **more)
        room.files.put("a", b"changed\n")
        return content

    room.files.read = read_then_change
    result = use("patch.apply", {"patch": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+one\n"}, room)
    assert (result.is_error, result.code) == (True, "CONFLICT")
    assert content(room)["a"] == b"changed\n"


def test_a_patch_does_not_overwrite_a_file_that_it_adds(room):
    room.files.put("a", b"mine\n")
    result = use("patch.apply", {"patch": "--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n"}, room)
    assert result.is_error
    assert content(room)["a"] == b"mine\n"


def test_a_patch_deletes_a_file(room):
    room.files.put("a", b"x\n")
    assert not use("patch.apply", {"patch": "--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"}, room).is_error
    assert content(room) == {}


def match(path="./a.py", line=3, text="x = 1\n", offset=0):
    found = {"path": {"text": path}, "lines": {"text": text}, "line_number": line, "absolute_offset": offset}
    return {"type": "match", "data": found}


def rg(*records, exit_code=0, stderr=b"", files=(("a.py", b"x = 1\ny = 2\n"),)):
    """A workspace in which ripgrep says that."""
    output = b"".join(
        record if isinstance(record, bytes) else json.dumps(record).encode() + b"\n" for record in records
    )
    room = Room(said(output, *([("stderr", stderr)] if stderr else []), exit_code=exit_code))
    for path, data in files:
        room.files.put(path, data)
    return room


def test_a_search_gives_path_line_and_text():
    result = use("workspace.search", {"pattern": "x"}, rg(match(), {"type": "summary", "data": {}}))
    assert result.text.startswith("a.py:3:x = 1\n[left out: hidden files")
    assert result.structured["matches"] == [{"path": "a.py", "line": 3, "text": "x = 1"}]
    assert not result.structured["truncated"]


def test_a_search_reaches_no_host_whatever_its_profile_allows_and_a_command_does():
    room = rg(match())
    hosts = EgressRules.model_validate({"rules": [{"host": "a.example"}]})
    work = replace(bench(room), profile=Profile(egress=hosts))
    for name, asks in (("workspace.search", {"pattern": "x"}), ("workspace.exec", {"command": "x"})):
        run_tool(REGISTRY.resolve(name), asks, work)
    assert [asked.egress for asked in room.requests] == [DENY_ALL, hosts]


def test_a_search_without_a_match_is_no_error():
    result = use("workspace.search", {"pattern": "x"}, rg(exit_code=1))
    assert (result.is_error, result.text.split("\n")[0]) == (False, "No match.")


def test_a_search_that_rg_refuses_says_why():
    result = use("workspace.search", {"pattern": "("}, rg(exit_code=2, stderr=b"regex parse error"))
    assert (result.is_error, result.code, result.text) == (True, "SEARCH_FAILED", "regex parse error")


def test_a_search_is_cut_and_says_so():
    result = use("workspace.search", {"pattern": "x", "max_results": 2}, rg(*[match(line=n) for n in range(1, 5)]))
    assert result.structured["truncated"]
    assert len(result.structured["matches"]) == 2
    assert "cut after 2" in result.text


def test_names_and_lines_that_are_no_text_are_shown_somehow():
    record = match()
    record["data"]["path"] = {"bytes": base64.b64encode(b"\xff.py").decode()}
    room = rg(record, files=[("\udcff.py", b"x = 1\n")])
    assert use("workspace.search", {"pattern": "x"}, room).text.startswith("\\xff.py:3:x = 1\n")


@pytest.mark.parametrize(
    "record",
    [
        match(path="other.py"),
        match(text="root:x:0:0\n"),
        match(offset=1),
        match(offset=10**9),
        match(offset=10**30),
        match(text=""),
        match(path="../etc/passwd"),
        match(path="/etc/passwd"),
        match(path="a\0b"),
        match(text="x = 1\ny = 2\nz = 3\n"),
    ],
)
def test_a_line_that_is_not_in_the_workspace_is_left_out(record):
    result = use("workspace.search", {"pattern": "x"}, rg(record, match(line=1)))
    assert result.structured["matches"] == [{"path": "a.py", "line": 1, "text": "x = 1"}]


def test_a_search_says_how_many_lines_it_left_out():
    result = use("workspace.search", {"pattern": "x"}, rg(match(text="gone\n"), match(line=1)))
    assert "[1 left out: their files changed meanwhile, or could not be read again]" in result.text


@pytest.mark.parametrize(
    "said_by_another_rg",
    [
        b"[]\n",
        b"1\n",
        b"{}\n",
        b'{"type": "match"}\n',
        b'{"type": "match", "data": []}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\n",
    ],
)
def test_what_is_no_record_of_ripgrep_is_skipped(said_by_another_rg):
    result = use("workspace.search", {"pattern": "x"}, rg(said_by_another_rg, match(line=1)))
    assert len(result.structured["matches"]) == 1


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [(codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")],
)
def test_lines_of_a_file_with_a_byte_order_mark_are_found(mark, encoding):
    data = mark + "é\nx = é\n".encode(encoding)
    room = rg(match(line=2, text="x = é\n", offset=3), match(line=1, text="é\n"), files=[("a.py", data)])
    assert [one["text"] for one in use("workspace.search", {"pattern": "x"}, room).structured["matches"]] == [
        "x = é",
        "é",
    ]


def test_a_line_longer_than_a_read_is_found_and_cut():
    line = "x" * 5_000_000
    room = rg(match(line=1, text=line + "\n"), files=[("a.py", line.encode() + b"\n")])
    assert use("workspace.search", {"pattern": "x"}, room).structured["matches"][0]["text"] == "x" * 500


def test_lines_of_one_file_are_read_again_at_once():
    room = rg(*[match(line=n, offset=6 * n) for n in range(100)][1:], files=[("a.py", b"x = 1\n" * 100)])
    reads = []
    read = room.files.read
    room.files.read = lambda path, **more: reads.append(path) or read(path, **more)
    assert len(use("workspace.search", {"pattern": "x"}, room).structured["matches"]) == 99
    assert len(reads) == 1


def test_without_ripgrep_the_search_says_what_to_do():
    room = Room(lambda _request, _on_output: ExecResult(kind=ExitKind.SPAWN_FAILED, error="not found"))
    assert use("workspace.search", {"pattern": "x"}, room).code == "NO_RIPGREP"


@pytest.mark.parametrize("path", ["../etc/passwd", "/etc/passwd", "a/../../etc", "/workspace/../etc"])
def test_a_search_does_not_leave_the_workspace(path):
    room = rg(match())
    assert use("workspace.search", {"pattern": "x", "path": path}, room).is_error
    assert room.requests == []


names = st.text("-az. *", min_size=1, max_size=20).filter(lambda name: name.strip(". "))


@given(st.text(min_size=1, max_size=20), names)
def test_a_search_pattern_is_never_an_option(pattern, path):
    room = rg(exit_code=1)
    room.files.put(path, b"")
    use("workspace.search", {"pattern": pattern, "path": path}, room)
    argv = room.requests[0].argv
    assert argv[-4:] == ("--regexp", pattern, "--", path)


def test_a_command_is_a_line_for_the_shell_or_words_without_one():
    for given_input, argv in [({"command": "a | b"}, ("a | b",)), ({"argv": ["a", "|", "b"]}, ("a", "|", "b"))]:
        room = Room(said(b""))
        use("workspace.exec", given_input, room)
        assert room.requests[0].argv[-len(argv) :] == argv
