"""No tool that takes a path reads, writes or names anything outside the workspace while its path is swapped for a link."""

from __future__ import annotations

import json
import threading

import pytest

from codesdk.registry import Registry
from sandboxes import DEADLINE_S, python, request
from stage import REPOSITORY
from tool_bench import bench, empty, use

pytestmark = pytest.mark.engine
REGISTRY = Registry.load(REPOSITORY / "tool-registry")
CALLS = 60

OUTSIDE = """
import os, pathlib, shutil
shutil.rmtree("/tmp/outer", ignore_errors=True)
for folder in ("/tmp/outer", "/tmp/outer/sub"):
    os.makedirs(folder)
    for name in ("file", "leaf", "outside-name"): pathlib.Path(folder, name).write_text("line of outside\\n")
"""
LOOK = """
import os
for folder, _, names in sorted(os.walk("/tmp/outer")):
    for name in sorted(names): print(folder, name, os.lstat(os.path.join(folder, name)).st_mode, open(os.path.join(folder, name)).read())
"""
# A directory, one below it, and a file are exchanged with links to the same names outside: each path exists at any time.
SWAP = """
import ctypes, os, shutil
libc = ctypes.CDLL(None, use_errno=True)
PATHS = {"place": "/tmp/outer", "top/sub": "/tmp/outer/sub", "leaf": "/tmp/outer/leaf"}

def remove(path):
    if os.path.islink(path) or os.path.isfile(path): os.unlink(path)
    elif os.path.exists(path): shutil.rmtree(path)

def make(path, target):
    remove(path); remove(path + ".link")
    if os.path.isdir(target):
        os.makedirs(path + "/sub")
        for name in ("file", "leaf", "sub/file"): open(path + "/" + name, "w").write("line of inside\\n")
    else:
        open(path, "w").write("line of inside\\n")
    os.symlink(target, path + ".link")

os.makedirs("top", exist_ok=True)
for path, target in PATHS.items(): make(path, target)
print("swapping", flush=True)
while True:
    for path, target in PATHS.items():
        if libc.renameat2(-100, path.encode(), -100, (path + ".link").encode(), 2):
            try: make(path, target)  # a tool has moved or deleted one of them
            except OSError: pass  # and it is at work on it
"""
PATCH = "--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-line of {1}\n+patched\n"
SECTION = "*** Update File: {0}\n@@\n-{1}\n+patched\n"
ADD = "--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+added\n"
RENAME = "diff --git a/{0} b/{1}\nsimilarity index 100%\nrename from {0}\nrename to {1}\n"

ATTEMPTS = {
    "workspace.read": [{"path": "place/file"}, {"path": "top/sub/file"}, {"path": "leaf"}],
    "workspace.list": [{"path": "place"}, {"path": "top/sub"}, {"path": ".", "depth": 5}],
    "workspace.stat": [{"path": "place/outside-name"}, {"path": "top/sub/outside-name"}],
    "workspace.search": [
        {"pattern": "line", "path": path} for path in (".", "place", "top", "top/sub", "place/file", "leaf")
    ],
    "workspace.write": [{"path": path, "content": "written\n"} for path in ("place/new", "top/sub/file", "leaf")],
    "workspace.edit": [
        {"path": path, "old_text": f"line of {word}", "new_text": "edited", "replace_all": True}
        for path in ("place/file", "top/sub/file", "leaf")
        for word in ("inside", "outside")
    ],
    "workspace.move": [
        {"path": "place/file", "target": "stolen", "replace": True},
        {"path": "place/outside-name", "target": "stolen", "replace": True},
        {"path": "place/leaf", "target": "top/sub/leaf", "replace": True},
    ],
    "workspace.delete": [
        {"path": "place/file"},
        {"path": "place/outside-name"},
        {"path": "top/sub", "recursive": True},
        {"path": "top", "recursive": True},
    ],
    "patch.apply": [
        *({"patch": PATCH.format(path, word)} for path in ("place/file", "leaf") for word in ("inside", "outside")),
        *({"patch": SECTION.format(path, "line of inside")} for path in ("place/file", "leaf", "top/sub/file")),
        {"patch": "*** Delete File: place/outside-name\n"},
        {"patch": "*** Update File: leaf\n*** Move to: place/leaf\n"},
        {"patch": ADD.format("place/added")},
        {"patch": RENAME.format("place/outside-name", "stolen")},
    ],
}


def test_every_tool_that_takes_a_path_is_raced():
    takes_path = {
        tool.name
        for tool in REGISTRY.tools()
        if {"path", "target", "patch"} & set(tool.input_schema.get("properties", {}))
    }
    assert takes_path == set(ATTEMPTS)


@pytest.fixture
def swapped(sandbox):
    """A workspace whose paths are exchanged with links as fast as a process can."""
    empty(sandbox)
    python(sandbox, OUTSIDE)
    begun = threading.Event()
    asked = request("python3", "-c", SWAP)
    thread = threading.Thread(target=lambda: sandbox.exec(asked, lambda _: begun.set()))
    thread.start()
    assert begun.wait(DEADLINE_S)
    yield sandbox
    assert sandbox.cancel(asked.call, asked.attempt)
    thread.join(DEADLINE_S)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_tool_stays_in_the_workspace_while_its_path_is_swapped_for_a_link(swapped, name):
    tool = REGISTRY.resolve(name)
    before = python(swapped, LOOK).stdout
    assert before.count(b"line of outside") == 6
    ended = set()
    for number in range(CALLS):
        given = ATTEMPTS[name][number % len(ATTEMPTS[name])]
        result = use(tool, given, bench(swapped))
        ended.add(result.code or "COMPLETED")
        told = result.text + json.dumps(result.structured)
        assert "line of outside" not in told.replace("expected 'line of outside'", "")
        assert result.is_error or "outside-name" not in told
    assert python(swapped, LOOK).stdout == before
    assert len(ended) > 1 or name in ("workspace.search", "workspace.stat", "workspace.list"), ended
