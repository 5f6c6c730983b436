"""patch.apply on a real sandbox, with diffs of git and diff, and with hostile ones."""

from __future__ import annotations

import subprocess

import pytest

from codesdk.registry import Registry
from codesdk.sandbox.port import FileWrite
from sandboxes import run
from stage import REPOSITORY
from tool_bench import bench, empty, tree, use

pytestmark = pytest.mark.engine
REGISTRY = Registry.load(REPOSITORY / "tool-registry")
TOOL, EDIT = REGISTRY.resolve("patch.apply"), REGISTRY.resolve("workspace.edit")
BEFORE = {
    "a.txt": b"1\n2\n3\n4\n5\n6\n7\n8\n",
    "crlf.txt": b"one\r\ntwo\r\n",
    "bare.txt": b"no end",
    "gone.txt": b"x\n",
    "empty": b"",
    "sub/old name.txt": b"keep\nchange\nkeep\n",
    "run.sh": b"true\n",
}
AFTER = {
    "a.txt": b"1\n2\nthree\n4\n5\n6\n7\n8\n9\n",
    "crlf.txt": b"one\r\nTWO\r\n",
    "bare.txt": b"an end\n",
    "sub/new name.txt": b"keep\nchanged\nkeep\n",
    "run.sh": b"true\n",
    "caf\u00e9.txt": b"new\n",
    "made": b"",
}


@pytest.fixture
def place(sandbox):
    empty(sandbox)
    sandbox.files.write(tuple(FileWrite(path=path, content=content) for path, content in BEFORE.items()))
    return sandbox


def apply(sandbox, patch):
    return use(TOOL, {"patch": patch}, bench(sandbox))


def contents(sandbox):
    return {path: sandbox.files.read(path).data for path, kind in tree(sandbox).items() if kind == "file"}


def write(folder, files):
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)


def test_what_git_diff_writes_gives_the_same_files_and_modes(place, tmp_path):
    def git(*words):
        return subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.autocrlf=false", *words],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        ).stdout

    git("init", "--quiet")
    write(tmp_path, BEFORE)
    git("add", "-A")
    git("commit", "--quiet", "-m", "before")
    for path in set(BEFORE) - set(AFTER):
        (tmp_path / path).unlink()
    write(tmp_path, AFTER)
    (tmp_path / "run.sh").chmod(0o755)
    git("add", "-A")
    patch = git("diff", "--cached", "-M30%").decode()
    assert all(
        word in patch for word in ("rename from", "new mode 100755", "deleted file mode", '"b/caf', "\\ No newline")
    )
    result = apply(place, patch)
    assert not result.is_error, result
    assert contents(place) == AFTER
    assert place.files.stat("run.sh").mode == 0o755


def test_a_hunk_that_moved_lands_where_its_context_is(place):
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n 5\n-6\n+six\n 7\n"
    assert not apply(place, patch).is_error
    assert contents(place)["a.txt"] == b"1\n2\n3\n4\n5\nsix\n7\n8\n"


def test_a_patch_in_the_apply_patch_format_keeps_line_ends_newlines_and_modes(place):
    run(place, "chmod", "755", "run.sh")
    patch = (
        "*** Begin Patch\n*** Update File: crlf.txt\n@@\n one\n-two\n+TWO\n*** Update File: bare.txt\n@@\n-no end\n+an end\n"
        "*** Update File: run.sh\n*** Move to: bin/run.sh\n@@\n-true\n+false\n*** Delete File: gone.txt\n"
        "*** Update File: a.txt\n@@ 4\n 5\n-6\n+six\n*** End Patch\n"
    )
    result = apply(place, patch)
    assert not result.is_error, result
    found = contents(place)
    assert (found["crlf.txt"], found["bare.txt"], found["bin/run.sh"]) == (b"one\r\nTWO\r\n", b"an end", b"false\n")
    assert found["a.txt"] == b"1\n2\n3\n4\n5\nsix\n7\n8\n"
    assert not {"run.sh", "gone.txt"} & set(found)
    assert place.files.stat("bin/run.sh").mode == 0o755


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("etc/hostname", "OUTSIDE_WORKSPACE"),
        ("../out", "OUTSIDE_WORKSPACE"),
        ("/etc/hostname", "OUTSIDE_WORKSPACE"),
        ("near", "NOT_A_FILE"),
    ],
)
def test_an_edit_stays_in_the_workspace_and_follows_no_link(place, path, code):
    run(place, "sh", "-c", "ln -s /etc etc && ln -s gone.txt near")
    before = contents(place)
    for old in ("", "x"):
        result = use(EDIT, {"path": path, "old_text": old, "new_text": "y"}, bench(place))
        assert result.is_error
        assert result.code == code or (path == "near" and not old and result.code == "EDIT_REJECTED")
    assert contents(place) == before


def test_an_edit_keeps_the_mode(place):
    run(place, "chmod", "755", "run.sh")
    assert not use(EDIT, {"path": "run.sh", "old_text": "true", "new_text": "false"}, bench(place)).is_error
    assert contents(place)["run.sh"] == b"false\n"
    assert place.files.stat("run.sh").mode == 0o755


@pytest.mark.parametrize(
    ("patch", "code", "words"),
    [
        ("--- a/crlf.txt\n+++ b/crlf.txt\n@@ -1 +1 @@\n- one\n+1\n", "PATCH_REJECTED", r"found 'one\r\n'"),
        ("--- a/bare.txt\n+++ b/bare.txt\n@@ -1 +1 @@\n-no  end\n+end\n", "PATCH_REJECTED", "found 'no end'"),
        ("*** Add File: ../out\n+b\n", "OUTSIDE_WORKSPACE", "leaves the workspace"),
        ("*** Add File: /etc/out\n+b\n", "OUTSIDE_WORKSPACE", "absolute"),
        ("*** Add File: etc/out\n+b\n", "OUTSIDE_WORKSPACE", "workspace"),
        ("*** Add File: gone.txt\n+b\n", "CONFLICT", "gone.txt"),
        ("*** Update File: etc/passwd\n@@\n-a\n+b\n", "PATCH_REJECTED", "leaves the workspace"),
        ("*** Update File: ../../etc/passwd\n@@\n-a\n+b\n", "PATCH_REJECTED", "leaves the workspace"),
        ("*** Update File: near\n@@\n-x\n+y\n", "NOT_A_FILE", "symbolic link"),
        ("*** Delete File: near\n", "NOT_A_FILE", "symbolic link"),
        ("*** Delete File: etc/passwd\n", "PATCH_REJECTED", "leaves the workspace"),
        ("*** Delete File: near\n*** Add File: near\n+y\n", "NOT_A_FILE", "symbolic link"),
        ("*** Update File: near\n*** Move to: y\n", "PATCH_REJECTED", "workspace.move"),
        ("*** Update File: gone.txt\n*** Move to: etc/x\n", "OUTSIDE_WORKSPACE", "workspace"),
        ("*** Update File: gone.txt\n*** Move to: ../x\n", "OUTSIDE_WORKSPACE", "leaves the workspace"),
        ("--- a/gone.txt\n+++ b/run.sh\n@@ -1 +1 @@\n-x\n+y\n", "CONFLICT", "exists already"),
        ("--- etc/passwd\n+++ x\n@@\n-a\n+b\n", "PATCH_REJECTED", "leaves the workspace"),
        ("--- a/none\n+++ b/none\n@@ -1 +1 @@\n-a\n+b\n", "PATCH_REJECTED", "none: there is no such file"),
        ("--- /dev/null\n+++ b/gone.txt\n@@ -0,0 +1 @@\n+b\n", "CONFLICT", "gone.txt"),
        ("--- /dev/null\n+++ b/../out\n@@ -0,0 +1 @@\n+b\n", "OUTSIDE_WORKSPACE", "leaves the workspace"),
        ("--- /dev/null\n+++ /etc/out\n@@ -0,0 +1 @@\n+b\n", "OUTSIDE_WORKSPACE", "absolute"),
        ("--- /dev/null\n+++ b/etc/out\n@@ -0,0 +1 @@\n+b\n", "OUTSIDE_WORKSPACE", "workspace"),
        ("--- a/etc/passwd\n+++ b/etc/passwd\n@@ -1 +1 @@\n-a\n+b\n", "PATCH_REJECTED", "leaves the workspace"),
        ("--- a/near\n+++ b/near\n@@ -1 +1 @@\n-x\n+y\n", "NOT_A_FILE", "symbolic link"),
        ("--- a/near\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "NOT_A_FILE", "symbolic link"),
        ("diff --git a/near b/y\nrename from near\nrename to y\n", "PATCH_REJECTED", "workspace.move"),
        ("diff --git a/gone.txt b/run.sh\nrename from gone.txt\nrename to run.sh\n", "CONFLICT", "exists already"),
        ("diff --git a/gone.txt b/etc/x\nrename from gone.txt\nrename to etc/x\n", "OUTSIDE_WORKSPACE", "workspace"),
    ],
)
def test_what_cannot_be_applied_changes_nothing_and_says_why(place, patch, code, words):
    run(place, "sh", "-c", "ln -s /etc etc && ln -s gone.txt near")
    before = contents(place)
    # A good file in front: it must not be changed either.
    result = apply(place, "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-1\n+one\n" + patch)
    assert (result.is_error, result.code) == (True, code), result
    assert words in result.text
    assert contents(place) == before
