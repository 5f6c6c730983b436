"""The words without a file that an approver is shown as missing files."""

from __future__ import annotations

import pytest

from codesdk.approvals.missing_files import missing_files


def shown(*paths, commands=True):
    files = [{"path": path, "cwd": ".", "kind": "absent"} for path in paths]
    return {"bound": {"files": files}, **({"commands": [["x"]]} if commands else {})}


@pytest.mark.parametrize("path", ["deploy.sh", "src/new", "/etc/x", "a.tar.gz", "./run", "dir/"])
def test_what_looks_like_a_file_is_told(path):
    assert missing_files(shown(path)) == ((path,), 0)


@pytest.mark.parametrize("word", ["+x", "install", "main", "0644", "u+rw", "HEAD~1", "1.2.3", "a=b.c"])
def test_what_looks_like_a_word_is_counted(word):
    found = missing_files(shown(word, word))
    assert found == ((), 1)
    assert found.counted == "1 other word of it names no file, and must name none when it runs."


def test_of_a_file_tool_every_path_is_told():
    assert missing_files(shown("LICENSE", commands=False)) == (("LICENSE",), 0)


@pytest.mark.parametrize("bound", [None, {}, {"files": "x"}, {"files": [1]}, []])
def test_what_is_bound_otherwise_is_no_absence(bound):
    assert missing_files({"bound": bound, "commands": []}) == ((), 0)
