"""Path resolution without a container: with openat2 and with the fallback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from codesdk.sandbox.runner.workspace import files
from codesdk.sandbox.runner.workspace.root import OperationRefused, Root, refusal_of, relative


@pytest.fixture(params=["openat2", "walk"])
def root(request, tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "outside").write_text("outside")
    found = Root(str(workspace), has_openat2=request.param == "openat2")
    yield found
    os.close(found.fd)


@pytest.mark.parametrize(
    ("path", "clean"),
    [("", "."), (".", "."), ("/workspace", "."), ("a//b/./c", "a/b/c"), ("/workspace/a", "a"), ("a/../b", "a/../b")],
)
def test_paths_are_made_relative(path, clean):
    assert relative(path, "/workspace") == clean


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("..", "OUTSIDE_WORKSPACE"),
        ("a/../..", "OUTSIDE_WORKSPACE"),
        ("/", "OUTSIDE_WORKSPACE"),
        ("/workspace2", "OUTSIDE_WORKSPACE"),
        ("/workspace/../etc", "OUTSIDE_WORKSPACE"),
        ("a\0", "INVALID_PATH"),
        ("a/" * 3000, "INVALID_PATH"),
    ],
)
def test_paths_that_cannot_be_inside_are_refused(path, error):
    with pytest.raises(OperationRefused) as refused:
        relative(path, "/workspace")
    assert refused.value.error == error


def _word(root, path) -> str:
    try:
        return files.read(root, path, 0, 100)[1].decode()
    except OSError as error:
        return refusal_of(error).error
    except OperationRefused as refused:
        return refused.error


def test_links_out_are_refused(root):
    workspace = Path(root.workspace)
    (workspace / "relative").symlink_to("../outside")
    (workspace / "absolute").symlink_to(workspace.parent / "outside")
    (workspace / "up").symlink_to("..")
    assert {_word(root, path) for path in ("relative", "absolute", "up/outside")} == {"OUTSIDE_WORKSPACE"}


def test_a_proc_link_is_refused(root):
    (Path(root.workspace) / "magic").symlink_to(f"/proc/self/fd/{root.fd}")
    assert _word(root, "magic/x") == "OUTSIDE_WORKSPACE"


def test_a_file_in_place_of_a_directory_is_named_as_such(root):
    files.write(root, [files.Write("file", b"x", None, None)], 0)
    assert _word(root, "file/below") == "NOT_A_DIRECTORY"


def test_a_loop_of_links_ends(root):
    (Path(root.workspace) / "loop").symlink_to("loop")
    assert _word(root, "loop/x") == "OUTSIDE_WORKSPACE"


def test_writes_make_missing_directories_and_leave_no_temporary_files(root):
    files.write(root, [files.Write("a/b/c", b"x", None, None)], 0)
    with pytest.raises(OperationRefused):
        files.write(root, [files.Write("a/b/d", b"x", None, None), files.Write("a/b/c", b"y", "absent", None)], 0)
    assert [path.name for path in (Path(root.workspace) / "a/b").iterdir()] == ["c"]


def test_directories_are_not_made_through_links(root):
    workspace = Path(root.workspace)
    (workspace / "up").symlink_to("..")
    with pytest.raises((OSError, OperationRefused)):
        files.write(root, [files.Write("up/new/file", b"x", None, None)], 0)
    assert not (workspace.parent / "new").exists()


def test_a_locked_workspace_is_opened_again(root):
    Path(root.workspace).chmod(0)
    root.ensure_accessible()
    assert Path(root.workspace).stat().st_mode & 0o777 == 0o755
