"""What developers take for granted of a machine, in a sandbox: a host name, an identity for commits, shared memory."""

from __future__ import annotations

import pytest

from sandboxes import python, run

pytestmark = pytest.mark.engine

BUS_ERROR = """
import mmap, os
file = os.open("/dev/shm/large", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 256 << 20)
memory = mmap.mmap(file, 256 << 20)
for at in range(0, 256 << 20, 4096):
    memory[at] = 1
"""


def test_the_host_knows_its_own_name(sandbox):
    program = "import socket; print(socket.gethostbyname(socket.gethostname()))"
    ran = python(sandbox, program)
    assert (ran.stdout, ran.stderr) == (b"127.0.0.1\n", b"")
    assert run(sandbox, "hostname", "--fqdn").stdout == b"sandbox\n"


def test_a_commit_has_an_author_whom_repository_and_user_can_replace(open_sandbox):
    sandbox = open_sandbox()
    line = (
        "git init -q . && git commit -qm one --allow-empty && git log -1 --format=%ae"
        " && git config --global user.email user@example.com && git commit -qm two --allow-empty && git log -1 --format=%ae"
        " && git config user.email repository@example.com && git commit -qm three --allow-empty && git log -1 --format=%ae"
    )
    ran = run(sandbox, "sh", "-c", line)
    assert ran.stdout.decode().split() == ["agent@codesdk.invalid", "user@example.com", "repository@example.com"]
    assert ran.stderr.decode() == ""


def test_shared_memory_has_the_engines_usual_size_and_more_of_it_is_a_bus_error(open_sandbox):
    ran = python(open_sandbox(), BUS_ERROR)
    assert ran.result.signal == 7
    size = run(open_sandbox(), "df", "--output=size", "-B1", "/dev/shm").stdout.decode().split()
    assert size[-1] == str(64 << 20)


@pytest.mark.parametrize("top", ["0500", "0000"])
def test_a_tree_of_read_only_directories_is_deleted(open_sandbox, top):
    sandbox = open_sandbox()
    line = f"mkdir -p mod/a/b && touch mod/f mod/a/f mod/a/b/f && chmod -R a-w mod && chmod {top} mod"
    assert run(sandbox, "sh", "-c", line).result.exit_code == 0
    assert sandbox.files.delete("mod", recursive=True) == 6
    assert run(sandbox, "ls").stdout == b""
