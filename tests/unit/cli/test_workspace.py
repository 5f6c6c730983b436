"""Packing a directory as the tar of a workspace."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile

import pytest

from codesdk.cli.session.workspace_archive import WorkspaceRefused, pack, without_top_folder


def content_of(archive: bytes) -> dict[str, bytes | str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        return {
            member.name: packed.extractfile(member).read() if member.isfile() else f"-> {member.linkname}"
            for member in packed
        }


def write(folder, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_plain_directory_is_packed_without_caches_and_version_control(tmp_path):
    write(tmp_path, a="1", src__b="2", node_modules__c="3")
    write(tmp_path / ".git", config="4")

    archive, files = pack(tmp_path)

    assert content_of(archive) == {"a": b"1", "src/b": b"2"}
    assert files == 2


def test_a_git_work_tree_is_packed_without_what_git_ignores(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write(tmp_path, a="1", built__b="2", **{".gitignore": "built/\n"})

    archive, _ = pack(tmp_path)

    assert set(content_of(archive)) == {".gitignore", "a"}


def test_links_stay_links_and_second_names_become_copies(tmp_path):
    write(tmp_path, a="1")
    os.link(tmp_path / "a", tmp_path / "b")
    (tmp_path / "c").symlink_to("/etc/passwd")
    (tmp_path / "d").symlink_to(".")

    archive, _ = pack(tmp_path)

    assert content_of(archive) == {"a": b"1", "b": b"1", "c": "-> /etc/passwd", "d": "-> ."}


def test_owners_are_left_out_and_only_the_execute_bit_is_kept(tmp_path):
    write(tmp_path, a="1", b="2")
    (tmp_path / "b").chmod(0o4770)

    archive, _ = pack(tmp_path)

    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        assert {(m.name, m.mode, m.uid, m.uname) for m in packed} == {("a", 0o644, 0, ""), ("b", 0o755, 0, "")}


def test_a_directory_that_is_too_large_is_refused_with_advice(tmp_path):
    write(tmp_path, a="x" * 600, b="x" * 600)

    with pytest.raises(WorkspaceRefused, match="gitignore"):
        pack(tmp_path, max_bytes=1000)


def test_a_place_that_is_no_directory_is_refused(tmp_path):
    with pytest.raises(WorkspaceRefused, match="not a directory"):
        pack(tmp_path / "nowhere")


def test_a_source_archive_loses_its_top_folder(tmp_path):
    write(tmp_path, top__a="1", top__src__b="2")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.add(tmp_path / "top", "top")

    packed = content_of(without_top_folder(out.getvalue()))

    assert {name: value for name, value in packed.items() if isinstance(value, bytes)} == {"a": b"1", "src/b": b"2"}
    assert not any(name.startswith("top") for name in packed)
