"""workspace.edit: one text for another, exactly once or everywhere, and refusals that say where to look."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.decisions import Redaction
from codesdk.domain.redaction import Redactor
from codesdk.registry import Registry
from codesdk.registry.faults import InvalidInput
from codesdk.sandbox.port import FileError, FileFingerprint, FileWrite, FingerprintKind
from codesdk.sandbox.profiles.profile import Profile
from codesdk.tools.edit import EditRejected, replace_text
from codesdk.tools.nearest_lines import nearest_lines
from stage import REPOSITORY, Room
from tool_bench import bench, use

TOOL = Registry.load(REPOSITORY / "tool-registry").resolve("workspace.edit")
TEXT = "def a():\n    return 1\n\n\ndef b():\n    return 1\n"


@pytest.fixture
def room():
    made = Room()
    made.files.put("f.py", TEXT.encode(), mode=0o755)
    return made


def edit(room, old, new, path="f.py", *, at=None, **more):
    return use(TOOL, {"path": path, "old_text": old, "new_text": new, **more}, at or bench(room))


def content(room, path="f.py"):
    return room.files.read(path).data.decode()


def refused(room, result, code="EDIT_REJECTED"):
    assert (result.is_error, result.code) == (True, code), result
    assert result.text.startswith("Nothing was changed. ")
    assert content(room) == TEXT
    return result.text


def test_a_text_is_replaced_and_the_mode_stays(room):
    result = edit(room, "def b():\n    return 1", "def b():\n    return 2")
    assert content(room) == TEXT[:-2] + "2\n"
    assert (result.structured["lines"], result.structured["replacements"]) == ([5], 1)
    assert result.text == "Edited f.py at line 5."
    assert room.files.stat("f.py").mode == 0o755


def test_every_occurrence_is_replaced_on_request(room):
    result = edit(room, "return 1", "return 2", replace_all=True)
    assert content(room) == TEXT.replace("return 1", "return 2")
    assert (result.structured["lines"], result.structured["replacements"]) == ([2, 6], 2)


def test_a_text_can_be_deleted(room):
    assert not edit(room, "\n\ndef b():\n    return 1\n", "").is_error
    assert content(room) == "def a():\n    return 1\n"


# CherryHQ/stella#1076, openclaw/openclaw#21695: without line numbers agents guess a wider text, or give up.
def test_a_text_that_is_there_twice_is_refused_with_its_lines(room):
    text = refused(room, edit(room, "return 1", "return 2"))
    assert "2 times, at lines [2, 6]" in text
    assert "replace_all" in text


# LionSR/TeXRA#2059: texts of several lines have line numbers, too.
def test_lines_are_named_for_texts_of_several_lines(room):
    room.files.put("f.py", (TEXT * 20).encode())
    result = edit(room, "):\n    return 1\n", "")
    assert "more than 10 times, at lines [1, 5, 7, 11, 13, 17, 19, 23, 25, 29]" in result.text


def test_places_that_overlap_are_two_places(room):
    room.files.put("f.py", b"aaa\n")
    assert "2 times" in edit(room, "aa", "b").text


# anthropics/claude-code#51365, #9163, #26996: tabs that look like blanks.
def test_a_difference_in_white_space_is_named_with_the_nearest_lines(room):
    text = refused(room, edit(room, "def b():\n\treturn 1\n", "x"))
    assert "expected '\\treturn 1\\n' at line 6, found '    return 1\\n': only the white space differs" in text
    assert text.endswith("5: 'def b():'\n6: '    return 1'")


def test_a_text_with_another_word_shows_the_nearest_line(room):
    room.files.put("f.py", b"first\ntimeout_seconds = settings.timeout\nlast\n")
    result = edit(room, "timeout_seconds = settings.time_out\n", "x")
    assert "found 'timeout_seconds = settings.timeout'" in result.text
    assert result.text.endswith("2: 'timeout_seconds = settings.timeout'")


def test_a_text_like_no_line_says_to_read_the_file(room):
    assert refused(room, edit(room, "something else", "x")).endswith(
        "old_text is not in the file. Read the file again."
    )


def test_long_lines_and_many_lines_are_cut_in_a_refusal(room):
    room.files.put("f.py", b"".join(b"%d " % n + b"x" * 5000 + b"\n" for n in range(100)))
    result = edit(room, "".join(f"{n} {'x' * 5000}\n" for n in range(99)) + "other\n", "y")
    assert len(result.text) < 5000


def test_an_empty_old_text_makes_a_file(room):
    result = edit(room, "", "one\n", path="new/a.txt")
    assert (content(room, "new/a.txt"), result.structured["created"]) == ("one\n", True)


def test_an_empty_old_text_fills_an_empty_file(room):
    room.files.put("empty", b"", mode=0o600)
    result = edit(room, "", "one\n", path="empty")
    assert (content(room, "empty"), result.structured["created"]) == ("one\n", False)
    assert room.files.stat("empty").mode == 0o600


def test_an_empty_old_text_replaces_no_file_that_holds_something(room):
    assert "this file is not empty" in refused(room, edit(room, "", "x"))


@pytest.mark.parametrize(("old", "new", "words"), [("a", "a", "are the same"), ("a():\n", "a():\r\n", "")])
def test_an_edit_that_changes_nothing_is_refused_unless_line_ends_are_given(room, old, new, words):
    result = edit(room, old, new)
    assert words in result.text
    assert result.is_error == bool(words)


# Gitlawb/zero#378, anthropics/claude-code#164 and #28831: the agent reads and writes LF, the file has CRLF.
@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "b", "x\ny", "a\r\nx\r\ny\r\nc\r\n"),
        ("a\r\nb\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\n"),
        ("a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n"),
        ("a\r\nb\nc\n", "b", "x\ny", "a\r\nx\ny\nc\n"),
        ("a\r\nb\nc\n", "a", "x\ny", "x\r\ny\r\nb\nc\n"),
        ("a\r\nb", "b", "x\ny", "a\r\nx\r\ny"),
        ("a\nb", "b\n", "c\n", "a\nc"),
        ("a\r\nb", "a\nb\n", "c\nd\n", "c\r\nd"),
        ("\ufeffa\nb\n", "a\n", "c\n", "\ufeffc\nb\n"),
        ("\ufeffa\r\n", "a\n", "c\nd\n", "\ufeffc\r\nd\r\n"),
    ],
)
def test_a_file_keeps_its_line_ends_mark_and_missing_newline(room, before, old, new, after):
    room.files.put("f.py", before.encode())
    assert not edit(room, old, new).is_error
    assert content(room) == after


def test_each_place_of_a_mixed_file_keeps_its_line_end(room):
    room.files.put("f.py", b"a\r\na\na\r\n")
    edit(room, "a", "x\ny", replace_all=True)
    assert content(room) == "x\r\ny\r\nx\ny\nx\r\ny\r\n"


lines = st.text(st.sampled_from("ab \t"), max_size=4)
texts = st.lists(lines, min_size=1, max_size=8).map("\n".join)


@given(texts, st.data(), texts, st.booleans())
def test_an_edit_is_a_replacement_or_a_refusal(text, data, new, replace_all):
    start = data.draw(st.integers(0, len(text)))
    old = text[start : data.draw(st.integers(start, len(text)))]
    times = len(re.findall(f"(?={re.escape(old)})", text))
    try:
        changed, places = replace_text(text, old, new, replace_all=replace_all)
    except EditRejected:
        assert old in ("", new) or (times > 1 and not replace_all)
        return
    assert changed == text.replace(old, new) if old else changed == new
    assert replace_all or times == 1 or not old
    assert len(places) == (text.count(old) if old else 1)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("none.py", "NOT_FOUND"),
        ("d", "IS_A_DIRECTORY"),
        ("../x", "OUTSIDE_WORKSPACE"),
        ("/etc/passwd", "OUTSIDE_WORKSPACE"),
    ],
)
def test_what_is_no_file_of_the_workspace_is_refused(room, path, code):
    room.files.put("d/x", b"")
    refused(room, edit(room, "a", "b", path=path), code)


def test_binary_and_large_files_are_refused(room):
    room.files.put("bin", b"\xff\xfe")
    assert edit(room, "a", "b", path="bin").code == "NOT_TEXT"
    room.files.put("f.py", b"a" * 3000)
    at = bench(room, Profile(max_read_bytes=1024))
    assert edit(room, "aa", "b", at=at).code == "TOO_LARGE"


def test_a_file_that_changes_meanwhile_is_not_written(room):
    class Changing:
        def __init__(self, files):
            self._files = files

        def __getattr__(self, name):
            return getattr(self._files, name)

        def write(self, writes):
            self._files.put("f.py", b"other")
            return self._files.write(writes)

    files = room.files
    room.files = Changing(files)
    assert edit(room, "a()", "c()").code == "CONFLICT"
    assert files.read("f.py").data == b"other"


@pytest.mark.parametrize("shown", ["expected", "bound"])
def test_only_what_a_person_was_shown_is_edited(room, shown):
    other = "sha256:" + "0" * 64
    more = {"expected": {"f.py": other}}
    if shown == "bound":
        mark = FileFingerprint(path="./f.py", kind=FingerprintKind.FILE, real="/workspace/f.py", sha256=other, size=1)
        more = {"bound": (mark,)}
    text = refused(room, edit(room, "a()", "c()", at=bench(room, **more)), "CONFLICT")
    assert "since approval of this call was requested" in text


def test_a_write_without_a_condition_of_its_own_still_gets_that_of_the_preview(room):
    at = bench(room, expected={"f.py": "sha256:" + "0" * 64})
    assert at.write((FileWrite(path="f.py", content=b"x"),)).error is FileError.CONFLICT


def test_a_refusal_shows_nothing_that_policy_redacts(room):
    room.files.put("f.py", b"key = sk-12345678 # the key\nx = 1\n")
    at = bench(room, redactor=Redactor((Redaction(pattern="sk-[0-9]+"),)))
    result = edit(room, "key = sk-0 # the key\n", "x", at=at)
    assert "# the key" in result.text
    assert "12345678" not in result.text


@pytest.mark.parametrize(
    ("given_name", "meant"),
    [
        ("old_string", "old_text"),
        ("new_str", "new_text"),
        ("file_path", "path"),
        ("oldText", "old_text"),
        ("search", "old_text"),
    ],
)
def test_other_names_of_the_arguments_are_answered_with_ours(given_name, meant):
    with pytest.raises(InvalidInput, match=f"`{meant}` instead of `{given_name}`"):
        TOOL.check_input({"path": "f", "old_text": "a", "new_text": "b", given_name: "c"})


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        ("a" * 4_000_000, "a", "b", "more than 100000 times"),
        ("a" * 100_000, "a", "b" * 4_000_000, "too large"),
        ("a" * 4_000_000, "b" + "a" * 2_000_000, "c", "not in the file"),
    ],
)
def test_replacing_everything_is_bounded(text, old, new, words):
    with pytest.raises(EditRejected, match=words):
        replace_text(text, old, new, replace_all=True)


def test_the_nearest_lines_of_a_huge_text_are_not_looked_for():
    assert nearest_lines(["a b c\n"], "a b d\n" * 100_000) is not None
    assert nearest_lines(["a b c\n"], "a b d\n" * 300_000) is None
    assert nearest_lines(["a b c\n"], "a b d " * 2_000_000) is None
