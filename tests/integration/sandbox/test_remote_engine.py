"""A dockerd over TLS, with certificates on both sides: everything that sandboxes need works through its port."""

from __future__ import annotations

import hashlib
import sys

import pytest

from certificates import Authority
from codesdk.provision.engines.docker_engine import Engine as FoundEngine
from codesdk.provision.engines.endpoint import EndpointState, ping
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.docker.engine_tls import EngineTls
from codesdk.sandbox.port import FileWrite
from codesdk.sandbox.port.faults import EngineUnavailable
from gvisor import copy_image
from own_engine import OWN_ENGINE, OwnEngine
from sandboxes import request, run, spec

pytestmark = OWN_ENGINE

LISTENING = """
import os, socket, sys
listening = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[1], "w") as file:
    file.write(str(listening.getsockname()[1]))
os.dup2(listening.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Hands dockerd a port of this machine's loopback: it has a network namespace of its own, without one."""


@pytest.fixture(scope="module")
def remote(engine, sandbox_image, tmp_path_factory):
    """Address and files of an engine that has the sandbox image."""
    directory = tmp_path_factory.mktemp("remote")
    authority = Authority(directory / "certificates")
    cert, key = authority.sign("server", server=True)
    flags = ("--host=fd://", "--tlsverify", f"--tlscacert={authority.ca}", f"--tlscert={cert}", f"--tlskey={key}")
    port = directory / "port"
    own = OwnEngine(directory, flags=flags, launcher=(sys.executable, "-c", LISTENING, str(port)))
    try:
        own.start()
        copy_image(sandbox_image, engine, FoundEngine(own.places.host), lambda _: None)
        ours = authority.sign("client")
        yield f"tcp://127.0.0.1:{port.read_text()}", EngineTls(ca=authority.ca, cert=ours[0], key=ours[1])
    finally:
        own.clear()


@pytest.fixture(scope="module")
def sandbox(remote, sandbox_image):
    host, tls = remote
    made = DockerSandboxes("test-remote", Engine(host, tls=tls))
    opened = made.open(spec("test-remote", sandbox_image, workspace_bytes=1 << 30))
    yield opened
    made.destroy(opened.owner)
    assert made.sweep(()).containers == ()
    made.close()


def test_commands_files_and_large_output_pass_whole(sandbox):
    program = "import os\nfor n in range(3_000_000 // 8): os.write(1, b'%07d\\n' % n)"
    ran = run(sandbox, "python3", "-c", program)
    expected = b"".join(b"%07d\n" % number for number in range(3_000_000 // 8))
    assert hashlib.sha256(ran.stdout).digest() == hashlib.sha256(expected).digest()
    data = bytes(range(256)) * 40_000
    sandbox.files.write((FileWrite(path="large", content=data),))
    assert sandbox.files.read("large", length=len(data)).data == data[: 4 << 20]
    assert run(sandbox, "sha256sum", "large").stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_input_output_and_signals_of_a_background_process_pass(sandbox):
    asked = request("cat", stdin_open=True)
    sandbox.processes.start(asked)
    sandbox.processes.write(asked.call, 1, b"there and back\n")
    found = sandbox.processes.output(asked.call, 1, "stdout", 0, wait_s=20)
    assert found.data == b"there and back\n"
    assert sandbox.processes.signal(asked.call, 1, 15)


def test_the_workspace_says_that_its_cap_is_counted(sandbox):
    assert sandbox.attestation.disk_cap == "counted"


def test_another_worker_takes_a_sandbox_up_over_tls_and_stops_and_starts_it(remote, sandbox_image):
    host, tls = remote
    first = DockerSandboxes("test-remote-2", Engine(host, tls=tls))
    asked = spec("test-remote-2", sandbox_image, workspace_bytes=1 << 30)
    first.open(asked).files.write((FileWrite(path="kept", content=b"kept"),))
    first.close()
    second = DockerSandboxes("test-remote-2", Engine(host, tls=tls))
    found = second.reattach(asked.owner, 2)
    assert found.files.read("kept").data == b"kept"
    second.pause(asked.owner)
    second.resume(asked.owner)
    second.stop(asked.owner)
    again = second.start(asked.model_copy(update={"generation": 2}))
    assert run(again, "cat", "kept").stdout == b"kept"
    second.destroy(asked.owner)
    second.close()


def test_a_client_that_the_engine_does_not_know_is_refused(remote, tmp_path):
    host, tls = remote
    cert, key = Authority(tmp_path, "another authority").sign("client")
    # What the engine says of it can be lost with the connection, so that only the refusal itself is sure.
    with pytest.raises(EngineUnavailable):
        Engine(host, tls=tls.model_copy(update={"cert": cert, "key": key}))


def test_the_docker_command_reaches_it_with_the_same_files(remote, monkeypatch):
    host, tls = remote
    assert ping(host).answer is EndpointState.NOTHING
    for name, path in (("CA", tls.ca), ("CERT", tls.cert), ("KEY", tls.key)):
        monkeypatch.setenv(f"CODESDK_DOCKER_TLS_{name}", str(path))
    assert ping(host).answer is EndpointState.ENGINE
    assert Engine(host).endpoint == host
