from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codesdk.sandbox.port import FileKind, Manifest, ManifestEntry
from codesdk.sandbox.port.files import WorkspaceDiff, diff_manifests

PATHS = st.sampled_from(["a", "a/b", "c", "d", "ä"])
ENTRIES = st.tuples(st.sampled_from([0o644, 0o755]), st.sampled_from(["sha256:1", "sha256:2", None]), st.integers(0, 2))
TREES = st.dictionaries(PATHS, ENTRIES)


def manifest(tree) -> Manifest:
    return Manifest(
        entries=tuple(
            ManifestEntry(path=path, kind=FileKind.FILE, mode=mode, size=1, mtime_ns=mtime, mark=mark)
            for path, (mode, mark, mtime) in tree.items()
        )
    )


@given(TREES)
def test_a_workspace_has_not_changed_from_itself(tree):
    assert diff_manifests(manifest(tree), manifest(tree)) == WorkspaceDiff()


@given(TREES, TREES)
def test_every_path_is_told_once_or_is_the_same_in_both(before, after):
    found = diff_manifests(manifest(before), manifest(after))
    assert set(found.added) == after.keys() - before.keys()
    assert set(found.deleted) == before.keys() - after.keys()
    assert set(found.modified) <= before.keys() & after.keys()
    for path in (before.keys() & after.keys()) - set(found.modified):
        assert before[path][:2] == after[path][:2]


@given(TREES, TREES)
def test_the_way_back_is_the_reverse(before, after):
    there, back = diff_manifests(manifest(before), manifest(after)), diff_manifests(manifest(after), manifest(before))
    assert (there.added, there.modified, there.deleted) == (back.deleted, back.modified, back.added)


def test_a_file_that_was_written_with_what_it_had_has_not_changed():
    assert (
        diff_manifests(manifest({"a": (0o644, "sha256:1", 1)}), manifest({"a": (0o644, "sha256:1", 2)}))
        == WorkspaceDiff()
    )


def test_a_file_without_a_digest_has_changed_when_its_time_has():
    assert diff_manifests(manifest({"a": (0o644, None, 1)}), manifest({"a": (0o644, None, 2)})).modified == ("a",)
