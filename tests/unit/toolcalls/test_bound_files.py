"""The files that a call names, which an approval binds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.registry import Registry
from codesdk.sandbox.port import FileFingerprint, FingerprintKind, NamedPath
from codesdk.toolcalls.approval.bound_files import MAX_NAMES, bound_files_value, first_difference, named_files
from stage import REPOSITORY

REGISTRY = Registry.load(REPOSITORY / "tool-registry")


def names(tool="workspace.exec", **given):
    return [(name.path, name.cwd) for name in named_files(REGISTRY.resolve(tool), given)]


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("python run.py", "run.py"), ("bash x.sh", "x.sh"), ("./tool --fast", "./tool"), ("bin/tool", "bin/tool"),
        (". ./env.sh", "./env.sh"), ("source env.sh", "env.sh"), ("env A=1 python3 run.py", "run.py"),
        ("timeout 5 nice bash 'my script.sh'", "my script.sh"), ("bash -c 'python inner.py'", "inner.py"),
        ("make && ./built", "./built"), ("true; (exec ./later)", "./later"), ("python3 -u -- run.py", "run.py"),
        ("tool --config=conf.toml", "conf.toml"), ("python3 < stdin.py", "stdin.py"), ("bash<'in put.sh'", "in put.sh"),
        ("python /tmp/outside.py", "/tmp/outside.py"), ("echo $(cat secret.txt)", "secret.txt"), ("x=1 ./tool", "./tool"),
    ],
)  # fmt: skip
def test_a_file_that_a_line_names_is_found(command, path):
    assert (path, ".") in names(command=command)


@pytest.mark.parametrize(
    "command", ["python *.py", "bash $SCRIPT", 'bash "$(pick)"', "python -c 'print(1)\nprint(2)'", "cat <<< here"]
)
def test_what_only_a_running_shell_knows_is_not_named(command):
    found = [path for path, _ in names(command=command)]
    assert not [path for path in found if "*" in path or "$" in path or "\n" in path or path == "here"]


def test_a_command_that_is_looked_for_on_the_path_is_the_images_and_options_are_no_files():
    assert names(command="pytest -q --color") == []


def test_words_are_run_without_a_shell_and_named_as_they_are():
    assert names(argv=["python3", "a b.py", "$x"], cwd="sub") == [("a b.py", "sub"), ("$x", "sub")]


@pytest.mark.parametrize("line", ["cd sub && bash run.sh", "pushd sub; bash run.sh", "(cd sub; bash run.sh)"])
def test_a_line_that_changes_its_directory_names_the_file_in_both(line):
    assert {("run.sh", "."), ("run.sh", "./sub")} <= set(names(command=line))


@pytest.mark.parametrize(
    ("line", "directory"),
    [
        ("cd /tmp; bash run.sh", "/tmp"), ("cd .. && bash run.sh", "./.."), ("cd ~; bash run.sh", "~"),
        ("cd; bash run.sh", "~"), ("cd ~/x; bash run.sh", "~/x"), ("cd link/..; bash run.sh", "./link/.."),
        ("cd link/..; bash run.sh", "."), ("env -C sub bash run.sh", "./sub"), ("env -Csub bash run.sh", "./sub"),
        ("env --chdir=sub bash run.sh", "./sub"), ("sudo --chdir sub bash run.sh", "./sub"),
        ("cd a; cd b; cd c; cd d; cd /tmp; bash run.sh", "/tmp"),
        ("; ".join(f"cd d{number}" for number in range(20)) + "; bash run.sh", "./" + "/".join(f"d{n}" for n in range(20))),
    ],
)  # fmt: skip
def test_a_file_is_named_from_wherever_the_line_may_go(line, directory):
    assert ("run.sh", directory) in names(command=line)


@pytest.mark.parametrize("line", ["bash ~/run.sh", "bash < ~/run.sh", ". ~/run.sh"])
def test_a_file_of_the_home_directory_is_named(line):
    assert ("run.sh", "~") in names(command=line)
    assert names(argv=["bash", "x"], cwd="~") == [("x", "./~")]


@pytest.mark.parametrize("line", ["bash <>s", "bash 0<> s", "exec 3<>s; bash <&3"])
def test_a_file_that_is_opened_for_both_is_named(line):
    assert ("s", ".") in names(command=line)


def test_an_approver_is_told_that_a_line_changes_directory_too_often():
    line = "; ".join(f"cd d{number}" for number in range(7)) + "; bash run.sh"
    marks = tuple(FileFingerprint(path=p, cwd=c, kind=FingerprintKind.ABSENT) for p, c in names(command=line))
    assert "directories" in bound_files_value(marks)["more"]


@pytest.mark.parametrize("size", [9_000, 20_000])
def test_of_a_line_that_is_too_long_to_parse_the_first_words_are_named(size):
    found = names(command="sh run.sh " + " ".join(f"w{number}" for number in range(size)))
    marks = tuple(FileFingerprint(path=path, cwd=cwd, kind=FingerprintKind.ABSENT) for path, cwd in found)
    assert ("run.sh", ".") in found
    assert "may have changed" in bound_files_value(marks)["more"]


def test_directories_add_up():
    assert ("run.sh", "./a/b") in names(command="cd a; cd b; bash run.sh")


def test_what_is_run_comes_first_where_there_are_too_many_words():
    words = " ".join(f"word{number}" for number in range(3 * MAX_NAMES))
    found = names(command=f"echo {words}; bash evil.sh")
    assert len(found) == MAX_NAMES
    marks = tuple(FileFingerprint(path=path, cwd=cwd, kind=FingerprintKind.ABSENT) for path, cwd in found)
    assert "may have changed" in bound_files_value(marks)["more"]
    assert "more" not in bound_files_value(marks[1:])
    assert ("evil.sh", ".") in found


def test_file_tools_name_their_paths_and_patches_their_files():
    assert names("workspace.write", path="a.txt", content="") == [("a.txt", ".")]
    assert names("workspace.move", path="a", target="b") == [("a", "."), ("b", ".")]
    diff = "--- a/one.py\n+++ b/one.py\n@@ -1 +1 @@\n-1\n+2\n"
    assert names("patch.apply", patch=diff) == [("one.py", ".")]
    assert names("patch.apply", patch="nonsense") == []
    assert names("workspace.edit", path="a.txt", old_text="b.txt", new_text="c.txt") == [("a.txt", ".")]
    sections = "*** Update File: a.py\n*** Move to: b.py\n*** Delete File: c.py\n*** Add File: d.py\n+x\n"
    assert names("patch.apply", patch=sections) == [(path, ".") for path in ("b.py", "a.py", "c.py", "d.py")]


def test_a_patch_names_the_files_of_every_way_to_read_it():
    # By its counts, the hunk of `one` takes the names of `two` for lines.
    diff = "--- a/one\n+++ b/one\n@@ -1,2 +1,2 @@\n-a\n+b\n--- a/two\n+++ b/two\n@@ -1 +1 @@\n-c\n+d\n"
    assert names("patch.apply", patch=diff) == [("one", "."), ("two", ".")]
    assert names("patch.apply", patch="--- a/x\n+++ a/x\n@@\n-c\n+d\n") == [("a/x", "."), ("x", ".")]


def test_a_tool_that_only_reads_names_nothing():
    assert names("workspace.read", path="a.txt") == []


@given(st.text(max_size=200))
def test_any_line_names_something_or_nothing_and_never_fails(line):
    found = named_files(REGISTRY.resolve("workspace.exec"), {"command": line})
    assert len(found) <= MAX_NAMES
    assert all("\0" not in name.path and name.path for name in found)


FILE = FileFingerprint(path="a", kind=FingerprintKind.FILE, real="/workspace/a", sha256="sha256:1", size=1)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"sha256": "sha256:2"}, "another content"), ({"real": "/workspace/b"}, "another file"),
        ({"kind": FingerprintKind.ABSENT, "real": "", "sha256": None, "size": 0}, "not there any more"),
    ],
)  # fmt: skip
def test_each_change_of_a_file_is_told_in_words(now, words):
    assert first_difference((FILE,), (FILE,)) == ""
    assert words in first_difference((FILE,), (FILE.model_copy(update=now),))
    absent = FileFingerprint(path="a", kind=FingerprintKind.ABSENT)
    assert "was not there" in first_difference((absent,), (FILE,))


def test_an_approver_sees_first_what_is_there():
    absent = FileFingerprint(path="b", kind=FingerprintKind.ABSENT)
    assert [file["path"] for file in bound_files_value((absent, FILE))["files"]] == ["a", "b"]
    assert bound_files_value(()) is None
    assert FILE.name == NamedPath(path="a")
