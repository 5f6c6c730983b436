from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys

import pytest

from codesdk.provision.servers import redis_server
from codesdk.provision.servers.redis_server import RedisMissing
from codesdk.provision.servers.shared_server import SharedServer

KILLED_USER = """\
import os, pathlib, signal, sys
from codesdk.provision.servers import redis_server
server = redis_server.ensure(pathlib.Path(sys.argv[1]), print)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def data_dir(tmp_path):
    yield tmp_path / "data"
    left = SharedServer(tmp_path / "data" / "run", "redis").read()
    if left is not None:
        left.terminate(5)


def quiet(line):
    pass


def test_a_server_is_started_in_a_private_directory_and_stopped(data_dir):
    server = redis_server.ensure(data_dir, quiet)
    assert server.started_by_us
    assert redis_server.answers(server.url)
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.socket.stat().st_mode) == 0o600
    assert server.stop()
    assert not server.process.alive
    assert not server.socket.exists()
    assert not server.stop()


def test_a_second_user_shares_the_server_and_the_last_one_stops_it(data_dir):
    first = redis_server.ensure(data_dir, quiet)
    second = redis_server.ensure(data_dir, pytest.fail)
    assert not second.started_by_us
    assert second.process == first.process
    assert not first.stop()
    assert redis_server.answers(second.url)
    assert second.stop()


def test_the_server_of_a_killed_run_is_taken_over_and_stopped(data_dir):
    killed = subprocess.run([sys.executable, "-c", KILLED_USER, str(data_dir)], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    server = redis_server.ensure(data_dir, pytest.fail)
    assert not server.started_by_us
    assert server.stop()
    assert not redis_server.answers(server.url)


def test_the_socket_and_record_of_a_killed_server_are_no_obstacle(data_dir):
    first = redis_server.ensure(data_dir, quiet)
    os.kill(first.process.pid, signal.SIGKILL)
    assert first.process.wait(10)
    assert first.socket.exists()
    second = redis_server.ensure(data_dir, quiet)
    assert second.started_by_us
    assert redis_server.answers(second.url)
    second.stop()
    first.stop()


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    data_dir = tmp_path / ("d" * 100)
    server = redis_server.ensure(data_dir, quiet)
    assert redis_server.answers(server.url)
    assert len(os.fsencode(server.socket)) <= redis_server.SOCKET_PATH_MAX
    assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700
    server.stop()


def test_a_runtime_directory_that_others_can_enter_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    data_dir = tmp_path / ("d" * 100)
    place = redis_server.redis_socket_path(data_dir).parent
    place.mkdir(parents=True)
    place.chmod(0o755)
    with pytest.raises(RedisMissing, match="not a private directory"):
        redis_server.ensure(data_dir, quiet)


def test_something_else_on_the_socket_is_a_fault_and_stays(data_dir, monkeypatch):
    monkeypatch.setattr(redis_server, "ANSWER_S", 0.2)
    data_dir.mkdir()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(data_dir / "redis.sock"))
        stranger.listen()
        with pytest.raises(RedisMissing, match="does not answer"):
            redis_server.ensure(data_dir, quiet)
        assert (data_dir / "redis.sock").exists()


@pytest.mark.parametrize("where", ["_ping", "SharedServer.register"])
def test_an_interrupt_while_it_starts_leaves_no_server(data_dir, monkeypatch, where):
    asked = []

    def interrupted(*_given):
        asked.append(1)
        # `_ping` is asked once whether a server is there already, and once the new one has had time to listen.
        if where == "_ping" and not redis_server_listens(data_dir):
            return answer(*_given)
        raise KeyboardInterrupt

    answer = redis_server._ping
    monkeypatch.setattr(f"codesdk.provision.servers.redis_server.{where}", interrupted)
    with pytest.raises(KeyboardInterrupt):
        redis_server.ensure(data_dir, quiet)
    assert asked
    assert not (data_dir / "redis.sock").exists()
    assert processes_on(data_dir) == []


def redis_server_listens(data_dir):
    return (data_dir / "redis.sock").exists()


def processes_on(data_dir):
    lines = subprocess.run(["ps", "-eo", "pid,stat,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in lines.splitlines() if str(data_dir) in line and "server" in line]


def test_a_program_that_fails_is_quoted_and_leaves_no_process(data_dir, monkeypatch):
    monkeypatch.setattr(redis_server, "program", lambda: "/bin/false")
    with pytest.raises(RedisMissing, match="did not start"):
        redis_server.ensure(data_dir, quiet)


def test_no_program_at_all_says_what_to_install(data_dir, monkeypatch):
    monkeypatch.setattr(redis_server, "program", lambda: None)
    with pytest.raises(RedisMissing) as caught:
        redis_server.ensure(data_dir, quiet)
    assert "apt-get install redis-server" in caught.value.advice()


def test_what_a_killed_run_left_is_removed_and_what_is_in_use_stays(data_dir):
    used = redis_server.ensure(data_dir, quiet)
    assert not redis_server.remove_unused(data_dir)
    assert redis_server.answers(used.url)
    used.stop()
    subprocess.run([sys.executable, "-c", KILLED_USER, str(data_dir)], capture_output=True, check=False)
    assert redis_server.answers(used.url)
    assert redis_server.remove_unused(data_dir)
    assert not redis_server.answers(used.url)
    assert not data_dir.exists()
