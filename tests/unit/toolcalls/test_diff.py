from __future__ import annotations

import contextlib
import difflib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.domain.work_budget import WorkBudget
from codesdk.tools.diff_parser import FilePatch, parse_diff
from codesdk.tools.git_paths import unquote_path
from codesdk.tools.hunks import MAX_WORK, PatchRejected
from codesdk.tools.hunks import apply_hunks as apply_to
from codesdk.tools.text_lines import split_lines


def apply_hunks(patch: FilePatch, text: str) -> str:
    return apply_to(patch.hunks, text, patch.path, WorkBudget(MAX_WORK), deletes=patch.change == "deleted")


# Characters that `splitlines` takes for line ends and diff does not, among ordinary ones.
line = st.text(st.sampled_from("ab -+@\\\t\r\x0b\x0c\x1c\x85\u2028é"), max_size=5)
texts = st.builds(lambda lines, last: "".join(text + "\n" for text in lines) + last, st.lists(line, max_size=12), line)


def unified(old, new, context=3, path="f.txt"):
    lines = list(
        difflib.unified_diff(split_lines(old), split_lines(new), f"a/{path}", f"b/{path}", n=context, lineterm="\n")
    )
    return "".join(text if text.endswith("\n") else text + "\n\\ No newline at end of file\n" for text in lines)


def one(diff):
    (patch,) = parse_diff(diff)
    return patch


def one_by_marks(diff):
    (patch,) = parse_diff(diff, by_counts=False)
    return patch


@given(texts, texts, st.integers(1, 3))
def test_what_difflib_says_applies(old, new, context):
    diff = unified(old, new, context)
    if diff:
        assert apply_hunks(one(diff), old) == new


@given(texts, texts)
def test_it_applies_where_lines_were_added_above(old, new):
    diff = unified(old, new)
    if not diff or not old:
        return  # what is added to nothing has no context to be found by
    above = "".join(f"unique {number}\n" for number in range(5))
    try:
        assert apply_hunks(one(diff), above + old) == above + new
    except PatchRejected as rejected:
        assert "fits at lines" in str(rejected)  # noqa: PT017 (rejecting is one of two right answers)


@given(texts)
def test_lines_are_as_diff_counts_them(text):
    assert "".join(split_lines(text)) == text
    assert len(split_lines(text)) == text.count("\n") + (not text.endswith("\n") and text != "")


def test_files_are_added_changed_and_deleted_in_one_diff():
    diff = "--- /dev/null\n+++ b/new\n@@ -0,0 +1,2 @@\n+a\n+b\n--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n--- a/m\n+++ b/m\n@@ -1 +1 @@\n-x\n+y\n"
    patches = parse_diff(diff)
    assert [(patch.path, patch.change) for patch in patches] == [
        ("new", "added"),
        ("old", "deleted"),
        ("m", "modified"),
    ]
    assert [apply_hunks(patch, text) for patch, text in zip(patches, ["", "x\n", "x\n"], strict=True)] == [
        "a\nb\n",
        "",
        "y\n",
    ]


def test_gits_headers_and_a_mails_signature_are_read_over():
    diff = (
        "From 1234 Mon Sep 17\nSubject: x\n---\n f | 2 +-\n\ndiff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n"
        "@@ -1 +1 @@ def x():\n-a\n+b\n-- \n2.39.5\n"
    )
    assert apply_hunks(one(diff), "a\n") == "b\n"


def test_the_signature_of_a_mail_ends_a_hunk_with_wrong_counts_and_a_removed_dash_does_not():
    diff = "--- a/f\n+++ b/f\n@@ -1,9 +1,9 @@\n a\n-- \n"
    assert apply_hunks(one_by_marks(diff + "2.39.5\n"), "a\n- \n") == "a\n- \n"
    assert apply_hunks(one_by_marks(diff), "a\n- \n") == "a\n"


def test_what_git_says_of_empty_files_modes_and_renames_is_not_lost():
    diff = (
        "diff --git a/empty b/empty\nnew file mode 100755\nindex 0000000..e69de29\n"
        "diff --git a/gone b/gone\ndeleted file mode 100644\nindex e69de29..0000000\n"
        "diff --git a/run me b/run me\nold mode 100644\nnew mode 100755\n"
        'diff --git "a/f\\303\\251" "b/f\\303\\251"\nnew file mode 100644\n'
        "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"
        "diff --git a/m b/m\nindex 1..2 100644\n--- a/m\n+++ b/m\n@@ -1 +1 @@\n-a\n+b\n"
    )
    found = [(patch.path, patch.change, patch.source, patch.mode, len(patch.hunks)) for patch in parse_diff(diff)]
    assert found == [
        ("empty", "added", None, 0o755, 0),
        ("gone", "deleted", None, None, 0),
        ("run me", "modified", None, 0o755, 0),
        ("fé", "added", None, 0o644, 0),
        ("y", "renamed", "x", None, 0),
        ("m", "modified", None, None, 1),
    ]


@pytest.mark.parametrize("first", ["y", "x"])
def test_a_file_is_named_once_also_as_the_source_of_a_rename(first):
    rename = "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"
    with pytest.raises(PatchRejected, match="twice"):
        parse_diff(f"--- a/{first}\n+++ b/{first}\n@@ -1 +1 @@\n-a\n+b\n{rename}")


@given(st.text(min_size=1, max_size=20).filter(lambda name: "\0" not in name and name.isprintable()))
def test_a_name_is_the_same_in_quotes(name):
    octal = "".join(f"\\{byte:03o}" for byte in name.encode())
    assert unquote_path(f'"{octal}"') == name
    assert unquote_path(name) == name or name.startswith('"')


def test_an_empty_context_line_without_its_space_counts():
    assert apply_hunks(one("--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n"), "a\n\nb\n") == "a\n\nc\n"


def test_text_around_a_patch_may_have_lists_and_a_patch_may_not():
    diff = "- a list\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
    for text in ("-- \n", "-- \n2.39.5\n", "```\n", "*** End Patch\n", "From 1234 Mon Sep 17\n"):
        assert apply_hunks(one(f"{diff}{text}- another\n"), "a\n") == "b\n"
    # The context line in front of the last one has lost its space: by its counts the hunk is over.
    with pytest.raises(PatchRejected, match="belongs to no hunk"):
        parse_diff(diff + "context\n+c\n")
    assert apply_hunks(one_by_marks(diff + "context\n+c\n"), "a\ncontext\n") == "b\ncontext\nc\n"


@pytest.mark.parametrize(
    ("diff", "words"),
    [
        ("", "no unified diff"),
        ("hello\n", "no unified diff"),
        ("--- a/f\n+++ b/f\n", "has no hunk"),
        ("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+b\n", "its header says"),
        ("--- a/f\n+++ g\n@@ -1 +1 @@\n-a\n+b\n", "only one of them has the prefix"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "both sides"),
        ("rename from a\nrename to b\n", "renames"),
        ("GIT binary patch\n", "binary"),
        ("diff --git a/x b/x\nindex 1..2 100644\nBinary files a/x and b/x differ\n", "binary"),
        ("diff --git a/x b/x\nindex 1..2 100644\nGIT binary patch\nliteral 3\n", "binary"),
        ("diff --git a/x b/y\nsimilarity index 90%\ncopy from x\ncopy to y\n", "copies"),
        ("diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc\n", "symbolic links"),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 104755\n", "mode 104755"),
        ("diff --git a/x b/y\nrename from x\n", "without `rename to`"),
        ("diff --git a/x b/y\nrename from x\nrename to y\n--- a/q\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "not those of"),
        ("diff --git a/x b/x\nindex 1..2 100644\n", "has no hunk"),
        ("diff --git a/x b/y\nnew file mode 100644\n", "two names differ"),
        ("diff --git a/x b/y\nrename from x\nrename to y\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "not those of"),
        ("diff --git a/x b/y\nrename from x\nrename to y\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n", "not those of"),
        ('--- "a/\\q"\n+++ "b/\\q"\n@@ -1 +1 @@\n-a\n+b\n', "no quoted name"),
        ('--- "a/\\777"\n+++ "b/\\777"\n@@ -1 +1 @@\n-a\n+b\n', "no quoted name"),
        ('--- "a/\\377"\n+++ "b/\\377"\n@@ -1 +1 @@\n-a\n+b\n', "not UTF-8"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n", "twice"),
        ("*** Add File: f\n+a\n*** Delete File: f\n", "twice"),
        # Models miscount: what the header does not count must not be left out in silence.
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n+c\n", "goes on"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n c\n", "goes on"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n-c\n", "goes on"),
        ("*** Move to: g\n", "stands below"),
        ("*** Update File: f\n", "has no hunk"),
        ("*** Update File: f\n*** End Patch\n", "has no hunk"),
        ("*** Update File: f\n@@ def x\n*** End Patch\n", "has no lines"),
        ("*** Update File: f\n@@\n-a\n+b\n```\n+c\n", "belongs to no hunk"),
        ("*** Add File: f\n\n+c\n", "belongs to no hunk"),
        ("*** Delete File: f\n-c\n", "belongs to no hunk"),
        ("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n", "workspace.edit"),
    ],
)
def test_what_is_no_good_diff_is_rejected_in_words(diff, words):
    with pytest.raises(PatchRejected, match=words):
        parse_diff(diff)


@pytest.mark.parametrize(
    ("hunk", "text", "words"),
    [
        ("@@ -1 +1 @@\n-a\n+b\n", "x\n", "expected 'a' at line 1, found 'x'"),
        ("@@ -9 +9 @@\n-a\n+b\n", "a\na\n", "fits at lines"),
        ("@@ -5,0 +6 @@\n+b\n", "a\n", "outside the file"),
        ("@@ -1 +1 @@\n-a\n+b\n", "", "end of file"),
    ],
)
def test_what_does_not_fit_is_rejected_in_words(hunk, text, words):
    with pytest.raises(PatchRejected, match=words):
        apply_hunks(one(f"--- a/f\n+++ b/f\n{hunk}"), text)


def test_a_deletion_must_cover_the_whole_file():
    with pytest.raises(PatchRejected, match="cover"):
        apply_hunks(one("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"), "a\nb\n")


fuzz = st.lists(
    st.sampled_from(
        [
            "--- a/f\n",
            "+++ b/f\n",
            "--- /dev/null\n",
            "+++ /dev/null\n",
            "@@ -1 +1 @@\n",
            "@@ -0,0 +1,2 @@\n",
            "@@ -1,2 +0,0 @@\n",
            "+a\n",
            "-a\n",
            " a\n",
            "\n",
            "\r\n",
            "\\ No newline\n",
            "+",
            "-",
            "--- ",
            "+++ ",
            "@@",
            "\\",
            "diff --git a/f b/f\n",
            "diff --git a/f b/g\n",
            "new file mode 100644\n",
            "deleted file mode 100644\n",
            "rename from f\n",
            "rename to g\n",
            '--- "a/\\',
        ]
    )
    | st.text(max_size=8),
    max_size=14,
).map("".join)


@settings(max_examples=400)
@given(fuzz, texts)
def test_nothing_but_patch_rejected_comes_out(diff, text):
    try:
        for patch in parse_diff(diff):
            apply_hunks(patch, text)
    except PatchRejected as rejected:
        assert str(rejected)  # noqa: PT017 (likewise)


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_no_bytes_break_it(data):
    with contextlib.suppress(PatchRejected):
        parse_diff("--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n" + data.decode("utf-8", "replace"))


@pytest.mark.parametrize("hunks", [10, 40, 400])
def test_hunks_that_are_all_looked_for_end_within_one_budget_for_the_whole_patch(hunks):
    # Each is found at once where it isn't stated, and only a search of the whole rest shows that this is its one place.
    text = "".join(f"u{number}\n" for number in range(hunks)) + "same\n" * 800_000
    patch = one("--- a/f\n+++ b/f\n" + "".join(f"@@ -900000 +900000 @@\n-u{n}\n+v\n" for n in range(hunks)))
    budget = WorkBudget(MAX_WORK)
    with pytest.raises(PatchRejected, match=r"looking for the places of so many lines takes too long"):
        apply_to(patch.hunks, text, "f", budget)
    assert -2 * len(text) < budget.left < 0


def test_files_share_the_budget_of_their_patch():
    text = "u\n" + "same\n" * 800_000
    (hunk,) = one("--- a/f\n+++ b/f\n@@ -9 +9 @@\n-u\n+v\n").hunks
    budget = WorkBudget(MAX_WORK)
    for number in range(4):
        apply_to((hunk,), text, f"f{number}", budget)
    with pytest.raises(PatchRejected, match="takes too long"):
        [apply_to((hunk,), text, f"f{number}", budget) for number in range(4, 10)]


def test_repeating_lines_are_searched_in_time_that_grows_with_the_file():
    old = "\n" * 1_000_000 + "x\n"
    (patch,) = parse_diff("--- a/f\n+++ b/f\n@@ -9,50001 +9,50001 @@\n" + "\n" * 50_000 + "-y\n+z\n")
    budget = WorkBudget(MAX_WORK)
    with pytest.raises(PatchRejected, match="expected 'y'"):
        apply_to(patch.hunks, old, "f", budget)
    assert MAX_WORK - budget.left < 3 * len(old)


def test_hunks_at_their_stated_lines_cost_no_more_than_their_file():
    lines = [f"line {number % 7}\n" for number in range(30_000)]
    hunks = "".join(f"@@ -{n},2 +{n},2 @@\n-{lines[n - 1]}+new\n {lines[n]}" for n in range(1, 30_000, 3))
    budget = WorkBudget(MAX_WORK)
    assert apply_to(one("--- a/f\n+++ b/f\n" + hunks).hunks, "".join(lines), "f", budget).count("new") == 10_000
    assert MAX_WORK - budget.left < 40 * sum(map(len, lines))


@pytest.mark.parametrize(
    ("diff", "words"),
    [
        ("--- a/f\n+++ b/f\n@@ -1,300000 +1,300000 @@\n" + "\n" * 300_000, "send it in parts of 100000 lines"),
        ("".join(f"diff --git a/{n} b/{n}\nnew file mode 100644\n" for n in range(501)), "parts of 500 files"),
    ],
)
def test_a_diff_of_too_many_lines_or_files_is_rejected_before_anything_is_read(diff, words):
    with pytest.raises(PatchRejected, match=words):
        parse_diff(diff)


def test_long_lines_are_not_repeated_in_a_message():
    (patch,) = parse_diff("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-" + "x" * 5000 + "\n+y\n")
    with pytest.raises(PatchRejected, match=r"characters more") as rejected:
        apply_hunks(patch, "z" * 5000 + "\n")
    assert len(str(rejected.value)) < 1000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x ", "expected 'x\\n' at line 1, found 'x '"),
        ("\tx\n", "expected 'x\\n' at line 1, found '\\tx\\n': only the white space differs"),
        ("", "expected 'x' at line 1, found (end of file)"),
        ("z\n", "expected 'x' at line 1, found 'z'"),
    ],
)
def test_a_line_that_differs_only_at_its_end_is_shown_with_it(text, said):
    (patch,) = parse_diff("--- a/f\n+++ b/f\n@@ -1,1 +1,1 @@\n-x\n+y\n")
    with pytest.raises(PatchRejected) as rejected:
        apply_hunks(patch, text)
    assert said in str(rejected.value)


def test_the_line_that_does_not_fit_is_named_and_not_the_hunks_first():
    (patch,) = parse_diff("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n same\n-x\n+y\n")
    with pytest.raises(PatchRejected, match="expected 'x' at line 2, found 'z'"):
        apply_hunks(patch, "same\nz\n")
