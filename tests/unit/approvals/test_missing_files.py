"""The words without a file that an approver is shown as missing files."""

from __future__ import annotations

import pytest

from codesdk.approvals.missing_files import missing_files


def shown(*paths, commands=(("x",),)):
    files = [{"path": path, "cwd": ".", "kind": "absent"} for path in paths]
    return {"bound": {"files": files}, **({"commands": [list(words) for words in commands]} if commands else {})}


@pytest.mark.parametrize("path", ["deploy.sh", "src/new", "/etc/x", "a.tar.gz", "./run", "dir/", "my notes/a b"])
def test_what_looks_like_a_file_is_told(path):
    assert missing_files(shown(path)) == ((path,), 0)


WORDS = ["+x", "install", "main", "0644", "u+rw", "HEAD~1", "1.2.3", "a=b.c", "a/b | c", "^src/.*$", "{a,b}/c"]
SCRIPTS = ["s/2.3.0/2.4.0/", "s|/a/b|/c|g", "y/abc/xyz/"]
NAMES = [
    "https://example.com/a.sh",
    "ann@example.com:/srv/",
    "example.com",
    "os.path",
    "ann@example.com",
    "@scope/package",
]


@pytest.mark.parametrize("word", [*WORDS, *SCRIPTS, *NAMES])
def test_what_looks_like_a_word_is_counted(word):
    found = missing_files(shown(word, word))
    assert found == ((), 1)
    assert found.counted == "1 other word of it names no file, and must name none when it runs."


def test_of_a_file_tool_every_path_is_told():
    assert missing_files(shown("LICENSE", commands=())) == (("LICENSE",), 0)


@pytest.mark.parametrize("bound", [None, {}, {"files": "x"}, {"files": [1]}, []])
def test_what_is_bound_otherwise_is_no_absence(bound):
    assert missing_files({"bound": bound, "commands": []}) == ((), 0)


@pytest.mark.parametrize("name", ["git", "/usr/bin/docker", "echo"])
def test_a_branch_an_image_or_a_text_is_counted(name):
    words = (name, "push", "origin/main", "fix.py", "./x")
    assert missing_files(shown("origin/main", "fix.py", "./x", commands=[words])) == (("fix.py", "./x"), 1)
    assert missing_files(shown("origin/main", commands=[words, ("cat", "origin/main")])) == (("origin/main",), 0)
