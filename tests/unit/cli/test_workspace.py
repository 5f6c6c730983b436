"""Packing a directory as the tar of a workspace."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile

import pytest

from codesdk.client.git_work_tree import GitHistoryRefused
from codesdk.client.workspace_archive import WorkspaceRefused, pack, without_top_folder


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


def git(folder, *words):
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    ran = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True)
    return ran.stdout


@pytest.fixture
def repository(tmp_path):
    """Three commits on a branch of their own, a changed file and one that git does not know; its origin has a password."""
    folder = tmp_path / "repository"
    git(tmp_path, "init", "-q", "-b", "topic", str(folder))
    for number in range(3):
        write(folder, a=str(number))
        git(folder, "add", "a")
        git(folder, "commit", "-qm", f"commit {number}")
    git(folder, "branch", "other")
    git(folder, "remote", "add", "origin", "https://me:password@example.com/r.git")
    (folder / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\n")
    git(folder, "config", "alias.mine", "!false")
    write(folder, a="changed", b="new")
    return folder


def unpacked(archive, target):
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(target, filter="data")
    return target


@pytest.mark.parametrize(("depth", "known"), [(2, 2), (50, 3), (0, 3)])
def test_the_history_of_the_branch_comes_along_where_it_is_asked_for(repository, tmp_path, depth, known):
    archive, files = pack(repository, git_depth=depth)

    copy = unpacked(archive, tmp_path / "copy")

    assert files == 2
    assert git(copy, "log", "--format=%s").splitlines() == [f"commit {n}" for n in (2, 1, 0)][:known]
    assert git(copy, "status", "--short", "--branch").splitlines() == ["## topic...origin/topic", " M a", "?? b"]
    assert "other" not in git(copy, "branch", "--all")


def test_a_history_brings_no_password_hook_or_setting_of_the_host(repository, tmp_path):
    copy = unpacked(pack(repository, git_depth=50)[0], tmp_path / "copy")

    assert git(copy, "remote", "get-url", "origin") == "https://example.com/r.git\n"
    assert not (copy / ".git" / "hooks").exists()
    everything = b"".join(path.read_bytes() for path in (copy / ".git").rglob("*") if path.is_file())
    for secret in (b"password", b"alias", str(tmp_path).encode()):
        assert secret not in everything


@pytest.mark.parametrize(
    ("url", "left"),
    [
        ("ssh://git@example.com/r.git", "ssh://git@example.com/r.git"),
        ("ssh://git:password@example.com/r.git", "ssh://git@example.com/r.git"),
        ("git@example.com:r.git", "git@example.com:r.git"),
        ("https://token@example.com:8443/r.git", "https://example.com:8443/r.git"),
        ("../elsewhere", None),
        ("/srv/r.git", None),
        ("file:///srv/r.git", None),
    ],
)
def test_an_origin_on_this_machine_is_left_out(repository, tmp_path, url, left):
    git(repository, "remote", "set-url", "origin", url)
    copy = unpacked(pack(repository, git_depth=1)[0], tmp_path / "copy")
    assert git(copy, "remote").split() == (["origin"] if left else [])
    if left:
        assert git(copy, "remote", "get-url", "origin").strip() == left


def test_a_repository_without_a_commit_and_a_linked_work_tree_have_a_history_too(repository, tmp_path):
    git(tmp_path, "init", "-q", "-b", "first", str(tmp_path / "empty"))
    write(tmp_path / "empty", a="1")
    copy = unpacked(pack(tmp_path / "empty", git_depth=50)[0], tmp_path / "one")
    assert git(copy, "status", "--short", "--branch").splitlines()[1:] == ["?? a"]
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"), "other")
    copy = unpacked(pack(tmp_path / "linked", git_depth=50)[0], tmp_path / "two")
    assert git(copy, "status", "--short", "--branch").splitlines() == ["## other...origin/other"]


def test_what_has_no_history_of_its_own_is_refused_with_what_to_do(repository, tmp_path):
    (tmp_path / "plain").mkdir()
    with pytest.raises(GitHistoryRefused, match=r"not a git repository.*leave --git out"):
        pack(tmp_path / "plain", git_depth=50)
    write(repository, below__c="1")
    with pytest.raises(GitHistoryRefused, match=f"--workspace {repository}"):
        pack(repository / "below", git_depth=50)


def test_a_history_counts_in_the_size(repository):
    with pytest.raises(WorkspaceRefused, match="--git-depth"):
        pack(repository, git_depth=50, max_bytes=100)
