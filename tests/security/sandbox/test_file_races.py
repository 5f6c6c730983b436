"""File operations stay beneath the workspace, even with symlinks that change quickly."""

from __future__ import annotations

import threading

import pytest

from codesdk.sandbox.port import FileContent, FileError, FileKind, FileRefused, FileWrite, Listing, NamedPath
from sandboxes import DEADLINE_S, python, request, run

pytestmark = pytest.mark.engine


def _refused(answer) -> FileError:
    assert isinstance(answer, FileRefused), answer
    return answer.error


def test_a_link_out_of_the_workspace_is_refused_and_shown_as_a_link(sandbox):
    run(sandbox, "sh", "-c", "ln -sfn /etc etc; ln -sf /etc/passwd passwd; ln -sf ../etc/shadow up")
    for path in ("passwd", "etc/passwd", "up"):
        assert _refused(sandbox.files.read(path)) is FileError.OUTSIDE
    assert _refused(sandbox.files.list("etc")) is FileError.OUTSIDE
    assert _refused(sandbox.files.write((FileWrite(path="etc/x", content=b""),))) is FileError.OUTSIDE
    assert sandbox.files.stat("etc").kind is FileKind.SYMLINK
    listing = sandbox.files.list(".", depth=3)
    assert isinstance(listing, Listing)
    assert not any(entry.path.startswith("etc/") for entry in listing.entries)


def test_a_link_inside_the_workspace_is_followed_for_reading(sandbox):
    run(sandbox, "sh", "-c", "mkdir -p real; echo x > real/file; ln -sfn real link")
    answer = sandbox.files.read("link/file")
    assert isinstance(answer, FileContent)
    assert answer.data == b"x\n"


def test_a_write_to_a_link_is_refused_and_its_target_stays(sandbox):
    run(sandbox, "sh", "-c", "echo kept > target; ln -sf target pointer")
    assert _refused(sandbox.files.write((FileWrite(path="pointer", content=b"new"),))) is FileError.NOT_A_FILE
    assert sandbox.files.read("target").data == b"kept\n"


def test_special_files_are_refused_at_once(sandbox):
    run(sandbox, "sh", "-c", "mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'")
    for path in ("pipe", "sock"):
        assert _refused(sandbox.files.read(path)) is FileError.NOT_A_FILE
        assert _refused(sandbox.files.write((FileWrite(path=path, content=b"x"),))) is FileError.NOT_A_FILE


def test_files_are_read_with_the_tools_rights_and_not_roots(sandbox):
    run(sandbox, "sh", "-c", "echo x > mine; chmod 000 mine; mkdir -p closed; chmod 000 closed")
    assert _refused(sandbox.files.read("mine")) is FileError.PERMISSION
    assert _refused(sandbox.files.list("closed")) is FileError.PERMISSION
    run(sandbox, "chmod", "700", "closed")


def test_what_is_written_belongs_to_the_tool(sandbox):
    sandbox.files.write((FileWrite(path="owned/file", content=b"x"),))
    uid = run(sandbox, "id", "-u").stdout
    assert run(sandbox, "stat", "-c", "%u", "owned", "owned/file").stdout == uid + uid


SWAP = """
import os, shutil, time
os.makedirs("/tmp/outside", exist_ok=True); open("/tmp/outside/file", "w").write("outside")
os.makedirs("{good}"); open("{good}/file", "w").write("inside"); os.symlink("/tmp/outside", "bad-{good}")
print("swapping", flush=True)
end = time.time() + 15
while time.time() < end:
    try:
        os.rename("{good}", "spare-{good}"); os.rename("bad-{good}", "{good}")
        os.rename("{good}", "bad-{good}"); os.rename("spare-{good}", "{good}")
    except OSError:  # a write has made the directory anew in the moment in which it was missing
        for name in ("{good}", "bad-{good}", "spare-{good}"):
            if os.path.islink(name): os.unlink(name)
            else: shutil.rmtree(name, ignore_errors=True)
        os.makedirs("{good}"); open("{good}/file", "w").write("inside"); os.symlink("/tmp/outside", "bad-{good}")
"""


def _while_swapping(sandbox, name, work) -> None:
    """Do `work` forty times while the directory of that name is swapped for a link and back."""
    begun = threading.Event()
    asked = request("python3", "-c", SWAP.format(good=name))
    thread = threading.Thread(target=lambda: sandbox.exec(asked, lambda _: begun.set()))
    thread.start()
    assert begun.wait(DEADLINE_S)
    for _ in range(40):
        work()
    assert sandbox.cancel(asked.call, asked.attempt)
    thread.join(DEADLINE_S)


def test_a_read_through_a_directory_that_is_swapped_for_a_link_never_leads_out(sandbox):
    """CVE-2018-15664's kind: the path is good when it is checked and leads elsewhere when it is used."""
    seen = []

    def read() -> None:
        answer = sandbox.files.read("read/file")
        if isinstance(answer, FileContent):
            seen.append(answer.data)
        else:
            assert answer.error in (FileError.OUTSIDE, FileError.NOT_FOUND)

    _while_swapping(sandbox, "read", read)
    assert set(seen) <= {b"inside"}


def test_a_write_through_a_directory_that_is_swapped_for_a_link_never_leads_out(sandbox):
    def write() -> None:
        sandbox.files.write((FileWrite(path="write/new", content=b"x"),))

    _while_swapping(sandbox, "write", write)
    assert run(sandbox, "ls", "-A", "/tmp/outside").stdout == b"file\n"


def test_a_name_that_is_no_utf8_is_listed_read_moved_and_deleted_by_one_spelling(sandbox):
    files = sandbox.files
    python(sandbox, r"import os; os.makedirs(b'odd\xe9', exist_ok=True); open(b'odd\xe9/\xff\n\xfe', 'w').write('x')")
    (directory,) = [entry.path for entry in files.list(".").entries if entry.path.startswith("odd")]
    (spelled,) = [entry.path for entry in files.list(directory).entries]
    assert (directory, spelled) == ("odd\\xe9", "odd\\xe9/\\xff\\x0a\\xfe")
    assert (files.read(spelled).data, files.stat(spelled).path) == (b"x", spelled)
    (info,) = files.write((FileWrite(path=spelled, content=b"y"),))
    assert info.path == spelled
    assert [entry.path for entry in files.manifest().entries if entry.path.startswith(directory)] == [
        directory,
        spelled,
    ]
    (mark,) = files.marks((NamedPath(path=spelled),))
    assert mark.sha256 == files.read(spelled).sha256
    assert files.move(spelled, f"{directory}/\\xfd").path == "odd\\xe9/\\xfd"
    assert run(sandbox, "ls", "-1", "-b", ".").stdout.splitlines().count(rb"odd\351") == 1
    assert files.delete(directory, recursive=True) == 2


@pytest.mark.parametrize("path", ["\\x2e\\x2e/outside", "\\x2fetc/passwd", "\\xc3\\xa9", "\\x2eenv", "\\x00"])
def test_no_spelling_stands_for_a_character_that_can_be_written(sandbox, path):
    assert _refused(sandbox.files.read(path)) is FileError.NOT_FOUND


def test_a_directory_of_ten_thousand_and_one_of_great_depth_are_listed_within_bounds(sandbox):
    program = """
import os
os.makedirs("wide")
for n in range(10000): open(f"wide/{n:05}", "w").close()
os.makedirs("deep"); os.chdir("deep")
for n in range(300): os.mkdir("d"); os.chdir("d")
"""
    python(sandbox, program)
    wide = sandbox.files.list("wide", limit=100)
    assert (len(wide.entries), wide.truncated) == (100, True)
    assert len(sandbox.files.list("deep", depth=1000).entries) == 32


def test_a_directory_of_fifty_thousand_does_not_hide_those_beside_it(sandbox):
    program = """
import os
os.makedirs("flat/a/lots"); os.makedirs("flat/b/c")
for n in range(50100): open(f"flat/a/lots/{n:05}", "w").close()
for n in range(50): open(f"flat/b/c/{n}", "w").close()
"""
    python(sandbox, program)
    listing = sandbox.files.list("flat", depth=3, limit=4)
    assert [entry.path for entry in listing.entries] == ["flat/a", "flat/b", "flat/a/lots", "flat/b/c"]
    assert listing.unscanned
    assert sandbox.files.list("flat", depth=3, glob="b/c/*").total == 50
    alone = sandbox.files.list("flat/a/lots", offset=49_999)
    assert (alone.total, len(alone.entries), alone.unscanned) == (50_000, 1, True)
    assert sandbox.files.delete("flat", recursive=True) > 50_000


def test_a_directory_that_is_swapped_for_a_link_is_not_entered_by_a_listing(sandbox):
    def entries() -> None:
        listing = sandbox.files.list(".", depth=3)
        assert not [
            entry for entry in listing.entries if entry.path.startswith("listing/") and entry.path != "listing/file"
        ]

    _while_swapping(sandbox, "listing", entries)
