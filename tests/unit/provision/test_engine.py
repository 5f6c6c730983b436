from __future__ import annotations

import dataclasses
import json
import socket
import threading

import pytest

from codesdk.provision.engines import docker_engine, dockerd
from codesdk.provision.engines.dockerd import DockerdPaths, remove_stale_files
from codesdk.provision.engines.endpoint import EndpointState, ping
from codesdk.provision.system.command import Root


@pytest.fixture
def answering(tmp_path):
    """A socket that answers one request as an engine does."""
    path = tmp_path / "docker.sock"
    body = json.dumps({"Version": "99.1", "ApiVersion": "1.99"})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(10)

        def answer():
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"unix://{path}"
        thread.join(10)


def test_an_engine_that_answers_is_used_and_never_stopped(answering, tmp_path):
    found = docker_engine.ensure(
        pytest.fail, managed=docker_engine.managed_engine(tmp_path), environ={"DOCKER_HOST": answering}
    )
    assert (found.host, found.started_by_us) == (answering, False)
    assert not found.stop()


def test_our_variable_goes_before_dockers(answering, tmp_path):
    found = docker_engine.ensure(
        pytest.fail,
        managed=docker_engine.managed_engine(tmp_path),
        environ={"DOCKER_HOST": "unix:///nowhere", "CODESDK_DOCKER_HOST": answering},
    )
    assert found.host == answering


def test_a_chosen_engine_that_does_not_answer_is_a_fault_and_nothing_is_installed(tmp_path):
    with pytest.raises(docker_engine.EngineMissing) as caught:
        docker_engine.ensure(
            pytest.fail,
            managed=docker_engine.managed_engine(tmp_path),
            environ={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"},
        )
    assert "DOCKER_HOST" in str(caught.value)
    assert "unset DOCKER_HOST" in caught.value.advice()


def test_a_socket_file_with_nobody_behind_it_is_no_engine(tmp_path):
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
    assert ping(f"unix://{path}").answer is EndpointState.NOTHING


def test_pid_files_of_other_programs_are_cleared_and_unrelated_files_stay(tmp_path):
    places = DockerdPaths(tmp_path / "log", pid_file=tmp_path / "dockerd.pid", exec_root=tmp_path / "exec")
    containerd = tmp_path / "exec" / "containerd" / "containerd.pid"
    containerd.parent.mkdir(parents=True)
    places.pid_file.write_text("1")  # the machine's init is not a dockerd
    containerd.write_text("1")
    other = containerd.with_name("containerd.toml")
    other.write_text("")
    remove_stale_files(places, Root(()))
    assert not places.pid_file.exists()
    assert not containerd.exists()
    assert other.exists()


def test_the_command_line_names_only_what_differs_from_dockerds_defaults(tmp_path):
    assert DockerdPaths(tmp_path / "log").argv() == ["dockerd"]
    assert DockerdPaths(tmp_path / "log", pid_file=tmp_path / "p").argv() == ["dockerd", f"--pidfile={tmp_path}/p"]


def test_a_containerd_socket_with_nobody_behind_it_is_removed_and_a_live_one_stays(tmp_path, monkeypatch):
    places = DockerdPaths(tmp_path / "log", pid_file=tmp_path / "dockerd.pid", exec_root=tmp_path / "exec")
    path = tmp_path / "containerd.sock"
    monkeypatch.setattr(dockerd, "SYSTEM_CONTAINERD", path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        remove_stale_files(places, Root(()))
        assert path.exists()
    remove_stale_files(places, Root(()))
    assert not path.exists()


def test_a_rootless_engine_is_found_where_the_standard_socket_is_silent(answering, tmp_path):
    found = docker_engine.find({"XDG_RUNTIME_DIR": str(tmp_path)}, f"unix://{tmp_path}/none.sock")
    assert found.host == answering
    assert found.ping.answer is EndpointState.ENGINE


def test_where_no_engine_answers_the_standard_socket_is_named(tmp_path):
    standard = f"unix://{tmp_path}/none.sock"
    assert docker_engine.find({"HOME": str(tmp_path)}, standard).host == standard


def test_an_engine_that_hangs_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(docker_engine, "STARTING_S", 0.1)
    monkeypatch.setattr(docker_engine, "ping", lambda host, timeout_s=0.1: ping(host, timeout_s=timeout_s))
    desk = docker_engine.managed_engine(tmp_path)
    desk = dataclasses.replace(desk, places=dataclasses.replace(desk.places, socket=tmp_path / "docker.sock"))
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "docker.sock"))
        hung.listen()
        with pytest.raises(docker_engine.EngineMissing, match="does not answer"):
            docker_engine.ensure(pytest.fail, managed=desk, environ={})
