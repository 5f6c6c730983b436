"""workspace.stat, move and delete on a real sandbox, against symbolic links that lead out of it."""

from __future__ import annotations

import pytest

from codesdk.registry import Registry
from codesdk.sandbox.port import FileWrite
from sandboxes import python, run
from stage import REPOSITORY
from tool_bench import bench, empty, tree, use

pytestmark = pytest.mark.engine
REGISTRY = Registry.load(REPOSITORY / "tool-registry")


@pytest.fixture
def place(sandbox):
    """A workspace with a file, and links that lead out."""
    empty(sandbox)
    sandbox.files.write((FileWrite(path="file", content=b"1"),))
    made = run(sandbox, "sh", "-c", "ln -s /etc out && ln -s /etc/passwd leak && ln -s file near && echo x >/tmp/kept")
    assert made.result.exit_code == 0
    return sandbox


def call(sandbox, name, **given):
    return use(REGISTRY.resolve(name), given, bench(sandbox))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("workspace.stat", {"path": "out/passwd"}),
        ("workspace.stat", {"path": "../tmp/kept"}),
        ("workspace.stat", {"path": "/tmp/kept"}),
        ("workspace.move", {"path": "out/passwd", "target": "stolen"}),
        ("workspace.move", {"path": "file", "target": "out/file"}),
        ("workspace.move", {"path": "file", "target": "/tmp/file"}),
        ("workspace.move", {"path": "../tmp/kept", "target": "stolen"}),
        ("workspace.delete", {"path": "out/passwd"}),
        ("workspace.delete", {"path": "/tmp/kept"}),
        ("workspace.delete", {"path": "near/../../tmp/kept"}),
    ],
)
def test_no_path_leads_out_of_the_workspace(name, given, place):
    before = tree(place)
    result = call(place, name, **given)
    assert (result.is_error, result.code) == (True, "OUTSIDE_WORKSPACE")
    assert tree(place) == before
    assert run(place, "cat", "/tmp/kept").stdout == b"x\n"


def test_a_link_is_looked_at_moved_and_deleted_as_itself(place):
    assert call(place, "workspace.stat", path="leak").structured["kind"] == "symlink"
    moved = call(place, "workspace.move", path="leak", target="sub/leak")
    assert moved.structured == {"path": "leak", "target": "sub/leak", "kind": "symlink", "replaced": False}
    assert call(place, "workspace.delete", path="sub/leak").structured["kind"] == "symlink"
    assert call(place, "workspace.delete", path="near").structured["entries"] == 1
    assert tree(place) == {"file": "file", "out": "symlink", "sub": "directory"}


def test_a_tree_with_links_is_deleted_and_what_they_point_to_stays(place):
    run(place, "sh", "-c", "mkdir d && ln -s /tmp d/out && ln -s ../file d/near")
    refused = call(place, "workspace.delete", path="d")
    assert (refused.code, tree(place)["d/out"]) == ("IS_A_DIRECTORY", "symlink")
    assert call(place, "workspace.delete", path="d", recursive=True).structured["entries"] == 3
    assert "file" in tree(place)
    assert run(place, "cat", "/tmp/kept").stdout == b"x\n"


def test_the_workspace_itself_is_neither_moved_nor_deleted(place):
    before = tree(place)
    assert call(place, "workspace.delete", path=".", recursive=True).code == "IS_A_DIRECTORY"
    assert call(place, "workspace.move", path=".", target="sub").is_error
    assert tree(place) == before


def test_what_has_the_new_name_stays_unless_it_is_to_be_replaced(place):
    place.files.write((FileWrite(path="other", content=b"2"),))
    assert call(place, "workspace.move", path="file", target="other").code == "CONFLICT"
    assert place.files.read("other").data == b"2"
    assert call(place, "workspace.move", path="file", target="other", replace=True).structured["replaced"]
    assert place.files.read("other").data == b"1"


def test_what_a_list_shows_is_what_every_other_tool_takes(place):
    empty(place)
    python(place, r"open(b'\xff\n.txt', 'w').write('needle\n'); open('\\x0a', 'w').write('needle\n')")
    listed = call(place, "workspace.list").text.split("\n")
    assert listed == ["\\x5cx0a", "\\xff\\x0a.txt"]
    found = call(place, "workspace.search", pattern="needle").structured["matches"]
    assert [match["path"] for match in found] == listed
    for name in listed:
        assert call(place, "workspace.read", path=name).structured["content"] == "needle\n"
        assert call(place, "workspace.stat", path=name).structured["path"] == name
        assert call(place, "workspace.move", path=name, target=f"d/{name}").structured["target"] == f"d/{name}"
        assert call(place, "workspace.write", path=f"d/{name}", content="").structured["created"] is False
        assert call(place, "workspace.delete", path=f"d/{name}").structured["path"] == f"d/{name}"
