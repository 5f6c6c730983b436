"""Which processes are taken for a sandbox that its engine forgot: none of anybody else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from contextlib import contextmanager

import pytest

from codesdk.sandbox.forgotten import end_forgotten

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child")


@contextmanager
def process(*settings, launcher=()):
    """One that says "up" and stays, with these as its last arguments."""
    program = "import sys; print('up', flush=True); sys.stdin.read()"
    command = [*launcher, sys.executable, "-c", program, *settings]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as begun:
        assert begun.stdout.readline() == "up\n"
        yield begun
        begun.stdin.close()


@pytest.fixture
def name():
    return f"codesdk-1234abcd-sbx_{uuid.uuid4().hex}"


def test_a_process_beside_the_worker_is_never_one(name):
    with process(json.dumps({"sandbox": name})) as beside:
        assert end_forgotten(name) == 0
        beside.stdin.close()
        assert beside.wait(20) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="a process namespace of its own needs root")
@pytest.mark.parametrize("said", ["", "{", "[]", "no json", '{"other": "NAME"}', '{"sandbox": "NAME-2"}', '"NAME"'])
def test_the_first_process_of_a_namespace_that_names_no_such_sandbox_is_none(name, said):
    with process(said.replace("NAME", name), launcher=UNSHARE) as other:
        assert end_forgotten(name) == 0
        other.stdin.close()
        assert other.wait(20) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="a process namespace of its own needs root")
def test_one_that_names_it_is_ended_with_all_of_its_namespace_but_not_for_another_container(name):
    program = "import subprocess, sys; print('up', flush=True); subprocess.run(['cat'])"
    command = [*UNSHARE, sys.executable, "-c", program, json.dumps({"sandbox": name})]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as begun:
        assert begun.stdout.readline() == "up\n"
        assert end_forgotten(name, "of another container") == 0
        assert begun.poll() is None
        assert end_forgotten(name) == 1
        assert begun.stdout.read() == ""  # nobody holds it any more
        assert begun.wait(20) != 0
        assert end_forgotten(name) == 0
