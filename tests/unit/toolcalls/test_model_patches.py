"""Patches as models write them: the corpus of shapes, each through the tool and held to its manifest."""

from __future__ import annotations

import difflib
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.policy.matching.call_paths import patch_paths
from codesdk.registry import Registry
from codesdk.tools.diff_parser import parse_readings
from codesdk.tools.hunks import PatchRejected
from stage import REPOSITORY, Room
from tool_bench import bench, use

TOOL = Registry.load(REPOSITORY / "tool-registry").resolve("patch.apply")
CORPUS = yaml.safe_load((REPOSITORY / "tests/fixtures/patches/model-written.yaml").read_text())


def room_with(files):
    room = Room()
    for path, text in files.items():
        room.files.put(path, text.encode())
    return room


def contents(room):
    entries = room.files.list(".", depth=9).entries
    return {entry.path: room.files.read(entry.path).data.decode() for entry in entries if entry.kind == "file"}


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case["name"])
def test_a_patch_of_the_corpus_applies_exactly_or_says_why_not(case):
    room = room_with(case["files"])
    result = use(TOOL, {"patch": case["patch"]}, bench(room))
    if "refused" in case:
        assert (result.is_error, result.code) == (True, case.get("code", "PATCH_REJECTED")), result
        assert case["refused"] in result.text
        assert contents(room) == case["files"]
    else:
        assert not result.is_error, result.text
        expected = case["files"] | case["after"]
        assert contents(room) == {path: text for path, text in expected.items() if text is not None}


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case["name"])
def test_policy_sees_every_path_of_the_corpus(case):
    try:
        readings = parse_readings(case["patch"])
    except PatchRejected:
        assert "refused" in case
        return
    paths = {path for reading in readings for file in reading for path in file.paths}
    assert paths <= set(patch_paths(case["patch"]))
    assert {path for path, text in case.get("after", {}).items() if text is not None} <= {
        path.removeprefix("/workspace/") for path in paths
    }


def test_the_corpus_has_at_least_sixty_reported_shapes():
    assert sum("report" in case for case in CORPUS) >= 60
    assert len({case["name"] for case in CORPUS}) == len(CORPUS)


def edited(draw):
    """A text of different lines and the text after some of them were removed, replaced or followed by others."""
    old = [f"line {number}\n" for number in range(draw(st.integers(1, 14)))]
    new = []
    for number, line in enumerate(old):
        match draw(st.sampled_from(["keep", "keep", "keep", "remove", "replace", "add"])):
            case "keep":
                new.append(line)
            case "replace":
                new.append(f"new {number}\n")
            case "add":
                new += [line, f"added {number}\n", "\n"]
    return "".join(old), "".join(new)


edits = st.composite(edited)()
marks = st.integers(0, 9)


def hunks_of(old, new, context):
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), n=context)
    return [line for line in lines if not line.startswith(("--- ", "+++ "))]


def applied(patch, text):
    room = room_with({"f": text})
    result = use(TOOL, {"patch": patch}, bench(room))
    assert not result.is_error, (result.text, patch)
    return contents(room)["f"]


@given(edits, st.integers(1, 3), st.data())
def test_an_edit_survives_wrong_counts(edit, context, data):
    old, new = edit
    hunks = [
        re.sub(r",?[0-9]* \+([0-9]+),?[0-9]* @@", lambda m: f",{data.draw(marks)} +{m[1]},{data.draw(marks)} @@", line)
        if line.startswith("@@")
        else line
        for line in hunks_of(old, new, context)
    ]
    if hunks:
        assert applied("--- a/f\n+++ b/f\n" + "".join(hunks), old) == new


@given(edits, st.integers(1, 3), st.sampled_from(["@@\n", "@@ ... @@\n", "@@ -?,? +?,? @@\n"]), st.booleans())
def test_an_edit_survives_the_apply_patch_format(edit, context, header, has_markers):
    old, new = edit
    body = "".join(header if line.startswith("@@") else line for line in hunks_of(old, new, context))
    patch = f"*** Update File: f\n{body}"
    if body:
        assert applied(f"*** Begin Patch\n{patch}*** End Patch\n" if has_markers else patch, old) == new


@given(edits, st.booleans(), st.booleans(), st.booleans())
def test_a_file_keeps_its_line_ends_mark_and_missing_newline(edit, crlf, bom, bare):
    old, new = edit
    body = "".join("@@\n" if line.startswith("@@") else line for line in hunks_of(old, new, 2))
    if not body or (bare and (old.splitlines()[-1:] != new.splitlines()[-1:])):
        return  # whether a newline is missing after another last line, the format cannot say

    def spelled(text):
        text = text.removesuffix("\n") if bare else text
        return "\ufeff" * bom + (text.replace("\n", "\r\n") if crlf else text)

    assert applied(f"*** Update File: f\n{body}", spelled(old)) == spelled(new)


NAMES = [
    "f",
    "a/f",
    "b/f",
    ".env",
    "/dev/null",
    '"b/\\056env"',
    '"a"/.env"',
    '"it\'s/\\056env"',
    " .env ",
    ".env\t1",
    "x y",
    ".env 2024-01-01 10:00:00",
    '"\\q"',
    "\x0b.env",
    ".env\x85",
    ".env\r",
    "\ufeff.env",
]
HEADERS = [
    "--- ",
    "+++ ",
    "*** Update File: ",
    "*** Add File:",
    "*** Delete File:\t",
    "*** Move to: ",
    "rename to ",
    "rename from ",
    "diff --git a/f ",
    "copy to ",
    " *** Update File: ",
    "***  Add File: ",
]
LINES = [
    "@@",
    "@@ -1 +1 @@",
    "@@ -0,0 +1 @@",
    "-a",
    "+b",
    " a",
    "",
    "```",
    "\ufeff",
    "\r",
    "*** Begin Patch",
    "*** End Patch",
    "*** End of File",
    "new file mode 100644",
    "diff --git a/f b/f",
]
hostile_lines = st.builds("{}{}\n".format, st.sampled_from(HEADERS), st.sampled_from(NAMES)) | st.sampled_from(
    [line + "\n" for line in LINES]
)


SECTIONS = [
    "--- {}\n+++ {}\n@@\n-a\n+b\n",
    "--- {}\n+++ {}\n@@ -1,7 +1,7 @@\n-a\n+b\n",
    "--- /dev/null\n+++ {}\n@@ -0,0 +1 @@\n+b\n",
    "--- {}\r\n+++ /dev/null\r\n@@ -1 +0,0 @@\r\n-a\r\n",
    "diff --git a/f b/g\nrename from {}\nrename to {}\n",
    "diff --git {0} {0}\nnew file mode 100644\n",
    "*** Update File: {}\n-a\n+b\n",
    "*** Update File:{}\n*** Move to:\t{}\n",
    "*** Add File: {} \r\n+b\r\n",
    "*** Delete File: {}\n",
]
named_sections = st.builds(str.format, st.sampled_from(SECTIONS), st.sampled_from(NAMES), st.sampled_from(NAMES))


@settings(max_examples=1000)
@given(
    st.sampled_from(["", "\ufeff", "text\n", "*** Begin Patch\n"]),
    st.lists(named_sections, min_size=1, max_size=3, unique=True).map("".join),
    st.lists(hostile_lines, max_size=2).map("".join),
)
def test_no_patch_names_a_file_that_policy_does_not_see(before, sections, after):
    patch = before + sections + after
    try:
        readings = parse_readings(patch)
    except PatchRejected:
        return
    assert {path for reading in readings for file in reading for path in file.paths} <= set(patch_paths(patch))


@settings(max_examples=300)
@given(st.lists(hostile_lines, max_size=9).map("".join), st.sampled_from(["", "a\n", "a\nb\na\n", "\ufeffa\r\n", "b"]))
def test_a_hostile_patch_ends_in_a_result(patch, text):
    room = room_with({"f": text, "a/f": text, "x y": text})
    if patch:
        result = use(TOOL, {"patch": patch}, bench(room))
        assert result.text
