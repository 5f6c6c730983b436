from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from codesdk.provision.servers.shared_server import SharedServer
from codesdk.provision.system.process_identity import ProcessIdentity, mark

HOLD = """\
import sys, pathlib
from codesdk.provision.servers.shared_server import SharedServer
shares = SharedServer(pathlib.Path(sys.argv[1]), "server")
with shares.lock():
    share = shares.register()
print("holding", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def shares(tmp_path):
    return SharedServer(tmp_path, "server")


@pytest.fixture
def other(tmp_path):
    """Another process that uses the server."""
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "holding\n"
        yield process
        process.kill()


def started():
    return mark(os.getpid())


def test_the_last_one_out_stops_the_server(shares):
    stopped = []
    shares.write(started())
    first, second = shares.register(), shares.register()
    assert not first.release(stopped.append)
    assert second.release(stopped.append)
    assert stopped == [started()]
    assert shares.read() is None


def test_a_server_that_another_process_uses_is_not_stopped(shares, other):
    stopped = []
    shares.write(started())
    assert not shares.register().release(stopped.append)
    assert shares.read() == started()
    assert not stopped


def test_a_killed_user_no_longer_counts(shares, other):
    stopped = []
    shares.write(started())
    other.kill()
    other.wait(10)
    assert shares.register().release(stopped.append)


def test_a_record_of_a_process_that_ended_means_nothing(shares):
    shares.write(ProcessIdentity(os.getpid(), started().started - 1))
    assert shares.read() is None


def test_a_record_from_before_the_last_boot_means_nothing(shares, tmp_path):
    shares.write("systemd")
    assert shares.read() == "systemd"
    record = tmp_path / "server.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "boot": "another"}))
    assert shares.read() is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pid": 1}', "{}"])
def test_an_unreadable_record_means_nothing(shares, tmp_path, text):
    (tmp_path / "server.json").write_text(text)
    assert shares.read() is None


def test_a_failed_stop_keeps_the_record_for_the_next_run(shares):
    def fail(_):
        raise RuntimeError

    shares.write(started())
    share = shares.register()
    with pytest.raises(RuntimeError):
        share.release(fail)
    assert shares.read() == started()
