"""Certificates for an engine over the network, and errors if they are invalid."""

from __future__ import annotations

import select
import socket
import ssl
import threading

import pytest

from certificates import Authority
from codesdk.provision.engines.endpoint import ping, tls_flags
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.docker.engine_tls import (
    EngineCertificate,
    EnginePlain,
    EngineTls,
    EngineUntrusted,
    TlsSocket,
    check_plain,
    find_tls,
)
from codesdk.settings import Settings


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def files(authority):
    cert, key = authority.sign("client")
    return EngineTls(ca=authority.ca, cert=cert, key=key)


@pytest.fixture(autouse=True)
def _no_certificates_of_the_environment(monkeypatch):
    for name in ("DOCKER_HOST", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"):
        monkeypatch.delenv(name, raising=False)


class Server:
    """Speaks TLS with one certificate to whoever comes, and nothing more."""

    def __init__(self, cert, key, ca):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(cert, key)
        self.context.load_verify_locations(ca)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.host = f"tcp://127.0.0.1:{self.socket.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            with peer:
                peer.settimeout(20)
                try:
                    with self.context.wrap_socket(peer, server_side=True) as wrapped:
                        wrapped.recv(1)
                except OSError:
                    pass

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(20)


@pytest.fixture
def serving(request):
    def serve(*what):
        server = Server(*what)
        request.addfinalizer(server.close)
        return server.host

    return serve


def refused(host, files):
    with pytest.raises(EngineUntrusted) as caught:
        Engine(host, tls=files)
    assert not caught.value.retryable
    assert "CODESDK_DOCKER_TLS_CA" in str(caught.value)
    return caught.value.message


def test_a_server_of_another_authority_is_refused(serving, authority, files, tmp_path):
    other = Authority(tmp_path, "another authority")
    said = refused(serving(*other.sign("server", server=True), authority.ca), files)
    assert "unable to get local issuer certificate" in said


def test_a_server_whose_certificate_has_expired_is_refused(serving, authority, files):
    host = serving(*authority.sign("old", server=True, days=(-9, -1)), authority.ca)
    assert "expired" in refused(host, files)


def test_a_server_of_another_name_is_refused(serving, authority, files):
    host = serving(*authority.sign("elsewhere", server=True, addresses=("10.0.0.1",)), authority.ca)
    assert "127.0.0.1" in refused(host, files)


def test_a_certificate_authority_of_the_environment_changes_nothing(serving, files, tmp_path, monkeypatch):
    other = Authority(tmp_path, "another authority")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(other.ca))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "")
    refused(serving(*other.sign("server", server=True), other.ca), files)


def test_what_does_not_speak_tls_is_refused(files):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            peer, _ = server.accept()
            with peer:
                peer.settimeout(20)
                peer.recv(1)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(EngineUntrusted, match="does not use TLS"):
            Engine(f"tcp://127.0.0.1:{server.getsockname()[1]}", tls=files)
        thread.join(20)


@pytest.mark.parametrize(
    "host",
    [
        "tcp://10.0.0.1:2375",
        "tcp://docker.example:2375",
        "http://[2001:db8::1]:2375",
        "https://127.0.0.1:2376",
        "10.0.0.1:2375",
        "docker.example:2375",
    ],
)
def test_another_machine_is_not_spoken_to_without_tls(host, monkeypatch):
    with pytest.raises(EnginePlain, match="without TLS"):
        Engine(host)
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(EnginePlain):
        Engine()


@pytest.mark.parametrize(
    "host",
    [
        "",
        "unix:///var/run/docker.sock",
        "tcp://127.0.0.1:2375",
        "tcp://[::1]:2375",
        "tcp://localhost:1",
        "127.0.0.1:2375",
        "ssh://a@b",
    ],
)
def test_loopback_and_what_is_no_port_need_none(host):
    check_plain(host)
    assert find_tls(Settings(), host) is None


def test_the_files_are_the_settings_or_dockers_own(files, tmp_path, monkeypatch):
    host = "tcp://10.0.0.1:2376"
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    named = Settings(docker_tls_ca=files.ca, docker_tls_cert=files.cert, docker_tls_key=files.key)
    assert find_tls(named, host) == files
    for name, source in (("ca.pem", files.ca), ("cert.pem", files.cert), ("key.pem", files.key)):
        (tmp_path / name).write_bytes(source.read_bytes())
    found = find_tls(Settings(), host)
    assert (found.ca, found.cert, found.key) == tuple(tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem"))
    with pytest.raises(EngineCertificate, match="must all be set"):
        find_tls(Settings(docker_tls_ca=files.ca), host)


def test_files_that_cannot_be_used_are_named(authority, files, tmp_path):
    text = tmp_path / "text"
    text.write_text("no PEM")
    _, foreign = authority.sign("foreign")
    old = authority.sign("old-client", days=(-9, -1))
    for change, words in (
        ({"ca": tmp_path / "none.pem"}, "none.pem"),
        ({"ca": text}, "a TLS file cannot be used"),
        ({"cert": text}, "a TLS file cannot be used"),
        ({"key": foreign}, "a TLS file cannot be used"),
        ({"cert": old[0], "key": old[1]}, "not valid now"),
    ):
        with pytest.raises(EngineCertificate, match=words):
            files.model_copy(update=change).check("tcp://10.0.0.1:2376")


def test_the_docker_command_takes_the_same_files_and_refuses_the_same_addresses(files, monkeypatch):
    with pytest.raises(EnginePlain):
        tls_flags("tcp://a:1")
    assert "without TLS" in ping("tcp://10.0.0.1:2375").detail
    for name, path in (("CA", files.ca), ("CERT", files.cert), ("KEY", files.key)):
        monkeypatch.setenv(f"CODESDK_DOCKER_TLS_{name}", str(path))
    named = (f"--tlscacert={files.ca}", f"--tlscert={files.cert}", f"--tlskey={files.key}")
    assert tls_flags("tcp://a:1") == ("--tlsverify", *named)
    assert tls_flags("unix:///a") == ()


def test_one_thread_reads_a_tls_connection_while_another_writes(authority, files):
    """Each writes more than the kernel holds before it reads: neither waits for the other for ever, nothing is lost."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.sign("pair", server=True))
    client = ssl.create_default_context(cafile=str(files.ca))
    ours, theirs = socket.socketpair()
    data, size = bytes(range(256)) * 40_000, 256 * 40_000
    got = {}

    def whole(end):
        pieces, count = [], 0
        while count < size:
            piece = end.recv(1 << 18)
            if piece is None:
                select.select([end], [], [], 0.1)
            elif piece:
                pieces.append(piece)
                count += len(piece)
            assert piece != b""
        return b"".join(pieces)

    def other_side():
        with server.wrap_socket(theirs, server_side=True) as wrapped:
            end = TlsSocket(wrapped)
            writer = threading.Thread(target=end.sendall, args=(data,), daemon=True)
            writer.start()
            got["theirs"] = whole(end)
            writer.join(60)
            ready.wait(60)

    ready = threading.Event()
    thread = threading.Thread(target=other_side, daemon=True)
    thread.start()
    with client.wrap_socket(ours, server_hostname="127.0.0.1") as wrapped:
        end = TlsSocket(wrapped)
        writer = threading.Thread(target=end.sendall, args=(data,), daemon=True)
        writer.start()
        got["ours"] = whole(end)
        writer.join(60)
        while "theirs" not in got and thread.is_alive():
            thread.join(0.05)
        ready.set()
        thread.join(60)
    assert got["ours"] == got["theirs"] == data
