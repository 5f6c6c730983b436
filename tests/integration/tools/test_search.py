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
        ("\ufffd", 1, "needle"),
    ]
    assert "left out" not in result.text
