"""workspace.search on a real sandbox: what ripgrep finds in files of any encoding is found again."""

from __future__ import annotations

import pytest

from codesdk.registry import Registry
from codesdk.sandbox.port import FileWrite
from sandboxes import python
from stage import REPOSITORY
from tool_bench import bench, empty, use

pytestmark = pytest.mark.engine
TOOL = Registry.load(REPOSITORY / "tool-registry").resolve("workspace.search")
FILES = {
    "bom": b"\xef\xbb\xbfneedle\n",
    "crlf": b"x\r\nneedle\r\n",
    "latin": b"needle \xe9\n",
    "long": b"y" * 3000 + b"\nneedle" + b"x" * 3000 + b"\nneedle",
    "utf-16": "a\nneedle é\n".encode("utf-16"),
}


def test_lines_are_found_again_whatever_their_files_encoding(sandbox):
    empty(sandbox)
    sandbox.files.write(tuple(FileWrite(path=path, content=data) for path, data in FILES.items()))
    python(sandbox, r"open(b'\xff', 'w').write('needle\n')")
    result = use(TOOL, {"pattern": "needle"}, bench(sandbox))
    assert [(match["path"], match["line"], match["text"][:8].strip()) for match in result.structured["matches"]] == [
        ("bom", 1, "needle"),
        ("crlf", 2, "needle"),
        ("latin", 1, "needle \ufffd"),
        ("long", 2, "needlexx"),
        ("long", 3, "needle"),
        ("utf-16", 2, "needle é"),
        ("\\xff", 1, "needle"),
    ]
    assert "their files changed meanwhile" not in result.text


def test_hidden_ignored_and_binary_files_are_searched_as_the_call_says(sandbox):
    empty(sandbox)
    files = {
        ".github/ci.yml": b"needle\n",
        ".env": b"needle\n",
        ".git/HEAD": b"needle\n",
        ".gitignore": b"build\n",
        "build/out.txt": b"needle\n",
        "blob.bin": b"needle\n\0\xff\0",
        "src/.hidden/a.py": b"needle\n",
        "src/a.py": b"needle\n",
    }
    sandbox.files.write(tuple(FileWrite(path=path, content=data) for path, data in files.items()))

    def paths(given, *allowed):
        at = bench(sandbox, allows=lambda asked: (asked.get("path", "."), asked.get("hidden", False)) in allowed)
        result = use(TOOL, {"pattern": "needle", **given}, at)
        assert not result.is_error, result
        return [match["path"] for match in result.structured["matches"]], result.text

    found, text = paths({})
    assert found == ["src/a.py"]
    assert "1 binary files with a match: blob.bin" in text
    assert paths({}, (".github", False))[0] == ["src/a.py", ".github/ci.yml"]
    everything = [".env", ".github/ci.yml", "src/.hidden/a.py", "src/a.py"]
    assert sorted(paths({}, (".", True))[0]) == sorted(paths({"hidden": True})[0]) == everything
    assert "build/out.txt" in paths({"ignored": True})[0]
    assert paths({"glob": "src"})[0] == paths({"path": "src"})[0] == ["src/a.py"]
    assert paths({"path": "src", "glob": "*.js,*.py"})[0] == ["src/a.py"]


def test_what_cannot_be_read_is_counted(sandbox):
    empty(sandbox)
    python(sandbox, "import os; open('a', 'w').write('needle'); open('b', 'w').close(); os.chmod('b', 0)")
    result = use(TOOL, {"pattern": "needle"}, bench(sandbox))
    assert [match["path"] for match in result.structured["matches"]] == ["a"]
    assert "1 files or directories that can't be read" in result.text
    assert use(TOOL, {"pattern": "("}, bench(sandbox)).code == "SEARCH_FAILED"
