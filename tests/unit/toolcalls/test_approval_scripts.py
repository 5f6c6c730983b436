"""The scripts that a call runs, as the people who approve it are shown them."""

from __future__ import annotations

import pytest

from codesdk.registry import Manifest, make_tool
from codesdk.sandbox.fake.files import FakeFiles
from codesdk.sandbox.port import FileWrite, NamedPath
from codesdk.sandbox.profiles.profile import Profile
from codesdk.toolcalls.approval.scripts import MAX_READ_BYTES, MAX_SHOWN_CHARACTERS, read_scripts, script_paths


def tool(**runs):
    schema = {"type": "object", "properties": {"version": {"type": "string"}, "command": {"type": "string"}}}
    return make_tool(
        Manifest(
            name="a.tool",
            version="1.0.0",
            title="A tool",
            description="A tool.",
            classification="dangerous",
            runs=runs,
            input_schema=schema,
        )
    )


EXEC = tool(builtin="workspace.exec")
DEPLOY = tool(argv=["sh", "deploy.sh", {"arg": "/version"}])


@pytest.fixture
def files():
    return FakeFiles(Profile())


def shown(files, path, content, then=None):
    """What is shown of a script whose content is `then` when it is read."""
    files.write((FileWrite(path=path, content=content),))
    marks = files.marks((NamedPath(path=path), NamedPath(path=path, cwd="./")))
    if then is not None:
        files.write((FileWrite(path=path, content=then),))
    return read_scripts(files, marks, [path])


@pytest.mark.parametrize(
    ("asked", "given", "paths"),
    [
        (EXEC, {"command": "cd x && sh a.sh; ./b && python3 c.py && sh a.sh"}, ("a.sh", "./b", "c.py")),
        (EXEC, {"argv": ["bash", "-eu", "a.sh"]}, ("a.sh",)),
        (EXEC, {"command": "make test; bash -c 'ls'"}, ()),
        (DEPLOY, {"version": "1"}, ("deploy.sh",)),
        # the input of a registered tool is data, whatever its name
        (DEPLOY, {"version": "1", "command": "sh other.sh"}, ("deploy.sh",)),
    ],
)
def test_the_scripts_of_a_call_are_the_files_that_its_commands_run(asked, given, paths):
    assert script_paths(asked, given) == paths


def test_a_script_is_shown_once_with_its_text(files):
    assert shown(files, "a.sh", b"echo hi\n") == [{"path": "a.sh", "size": 8, "text": "echo hi\n"}]


def test_a_script_that_changed_after_it_was_bound_is_not_shown(files):
    (script,) = shown(files, "a.sh", b"echo hi\n", then=b"rm -rf .\n")
    assert script == {"path": "a.sh", "size": 8, "hidden": "it changed while it was read"}


def test_a_long_script_is_cut_and_says_how_much_is_left_out(files):
    (script,) = shown(files, "a.sh", b"x" * (MAX_SHOWN_CHARACTERS + 5))
    assert (len(script["text"]), script["left_out"]) == (MAX_SHOWN_CHARACTERS, 5)


@pytest.mark.parametrize(
    ("content", "why"), [(b"\xff\xfe", "it is not text"), (b"x" * (MAX_READ_BYTES + 1), "it is too large to show")]
)
def test_what_cannot_be_shown_says_why(files, content, why):
    (script,) = shown(files, "a.sh", content)
    assert script["hidden"] == why
    assert "text" not in script


def test_what_is_no_file_of_the_workspace_is_left_out(files):
    assert read_scripts(files, files.marks((NamedPath(path="a.sh"),)), ["a.sh"]) == []
