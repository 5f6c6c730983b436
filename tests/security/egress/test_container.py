"""Egress of a real sandbox: which execs get out, which don't, and the cost for others."""

from __future__ import annotations

import hashlib
import logging
import threading
import time

import pytest

from codesdk.errors import Fault
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.egress.connection_attempt import AttemptPhase, Reason
from codesdk.sandbox.port import ExitKind, FileWrite
from egress_stage import FETCH, Attempts, Server, fetch, rules
from sandboxes import python, request, run, spec

pytestmark = pytest.mark.engine
_log = logging.getLogger(__name__)


def test_the_network_of_the_sandbox_is_still_only_loopback(sandbox):
    assert sandbox.attestation.network_interfaces == ("lo",)
    program = "import socket\ntry: socket.create_connection(('1.1.1.1', 443), 2)\nexcept OSError as e: print(e.errno)"
    assert python(sandbox, program).stdout == b"101\n"  # ENETUNREACH


def test_names_are_not_resolved_inside(sandbox, allowed):
    ran = python(sandbox, "import socket; socket.getaddrinfo('a.web.test', 80)", egress=allowed)
    assert b"gaierror" in ran.stderr


LEND = 'printf %s "$http_proxy" > lent.part; mv lent.part lent; sleep 3'
BORROW = """
import os, sys, time, urllib.request
# The credential of the neighbour, which cannot be read from its environment: it gives it away.
deadline = time.monotonic() + 8
while not os.path.exists('lent'):
    if time.monotonic() > deadline: raise SystemExit(2)
    time.sleep(0.05)
os.environ['http_proxy'] = open('lent').read()
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=5).read())
except OSError as error:
    print('refused', error)
    raise SystemExit(0)
raise SystemExit(1)
"""


def test_another_process_with_the_credential_is_refused_all_the_same(sandbox, site, allowed, attempts):
    waiter = threading.Thread(target=run, args=(sandbox, "sh", "-c", LEND), kwargs={"egress": allowed})
    waiter.start()
    try:
        ran = run(sandbox, "python3", "-c", BORROW, f"http://a.web.test:{site.port}/")
    finally:
        waiter.join()
    assert ran.result.exit_code == 0, ran
    assert b"403" in ran.stdout
    attempts.until(lambda: attempts.all)
    assert attempts.all[0].reason is Reason.NOT_THE_EXEC


def test_a_child_of_the_exec_may_also_when_it_has_left_its_session(sandbox, site, allowed):
    ran = run(sandbox, "setsid", "-w", "python3", "-c", FETCH, f"http://a.web.test:{site.port}/", egress=allowed)
    assert ran.stdout == b"hello\n"


def test_an_ipv6_socket_to_the_mapped_loopback_is_recognised(sandbox, site, allowed):
    program = f"""
import base64, os, socket, urllib.parse
url = urllib.parse.urlsplit(os.environ['http_proxy'])
made = socket.socket(socket.AF_INET6); made.connect(('::ffff:127.0.0.1', url.port))
auth = base64.b64encode(f'{{url.username}}:{{url.password}}'.encode()).decode()
made.sendall(f'GET http://a.web.test:{site.port}/ HTTP/1.1\\r\\nHost: a.web.test:{site.port}\\r\\nProxy-Authorization: Basic {{auth}}\\r\\n\\r\\n'.encode())
print(made.makefile('rb').read().endswith(b'hello'))
"""
    assert python(sandbox, program, egress=allowed).stdout == b"True\n"


def test_the_port_cannot_be_taken_by_a_tool(sandbox):
    program = """
import socket
for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::')):
    made = socket.socket(family); made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((host, 3128)); made.listen(); print('taken', host)
    except OSError as error:
        print(error.errno)
"""
    assert python(sandbox, program).stdout.split() == [b"98"] * 3  # EADDRINUSE


def test_a_sandbox_whose_profile_allows_nothing_has_no_listener(world, sandbox_image, allowed, site):
    made = world[0].open(spec(world[0]._instance, sandbox_image))
    try:
        ran = fetch(made, f"http://a.web.test:{site.port}/", egress=allowed)
        assert ran.result.exit_code == 1
        assert len(run(made, "cat", "/proc/net/tcp").stdout.splitlines()) == 1
    finally:
        world[0].destroy(made.owner)


def test_the_end_of_the_exec_ends_its_connections(sandbox, attempts, allowed):
    program = """
import os, socket, subprocess, sys, urllib.parse
url = urllib.parse.urlsplit(os.environ['http_proxy'])
held = socket.create_connection((url.hostname, url.port))
held.sendall(b'GET ')
subprocess.Popen(['sleep', '60'], pass_fds=[held.fileno()])
"""
    ran = python(sandbox, program, egress=allowed)
    assert ran.result.kind is ExitKind.EXITED
    attempts.until(lambda: attempts.all)  # it is recorded after the exec's end
    assert attempts.all[-1].phase is AttemptPhase.REFUSED
    # The last where a busy relay accepts the connection only after the exec's end, and finds no exec behind it.
    assert attempts.all[-1].reason in {Reason.EXEC_ENDED, Reason.BROKEN, Reason.NOT_THE_EXEC}


def test_many_connections_at_once_all_get_their_answer(sandbox, site, allowed):
    program = f"""
import urllib.request, concurrent.futures as f
with f.ThreadPoolExecutor(6) as pool:  # the limit is 16; a busy proxy learns late that a client closed
    got = list(pool.map(lambda i: urllib.request.urlopen('http://a.web.test:{site.port}/%d' % i, timeout=15).read(), range(60)))
print(set(got), len(got))
"""
    ran = python(sandbox, program, egress=allowed)
    assert ran.stdout == b"{b'hello'} 60\n", ran.stderr[-2000:]


def test_a_large_transfer_arrives_whole_and_does_not_hold_up_other_frames(
    world, sandbox_image, attempts, record_property
):
    size = 200_000_000
    block = bytes(range(256)) * 256

    def pour(made):
        made.recv(65536)
        made.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // len(block) + 1):
            made.sendall(block)

    server = Server(pour)
    big = rules({"host": "big.test", "protocol": "http", "ports": [server.port]})
    made = world[0].open(spec(world[0]._instance, sandbox_image, egress=big))
    program = f"""
import urllib.request, hashlib, time
found, count = hashlib.sha256(), 0
begun = time.monotonic()
with urllib.request.urlopen('http://big.test:{server.port}/', timeout=60) as answer:
    while data := answer.read(1 << 16):
        found.update(data); count += len(data)
print(count, found.hexdigest(), round(count / 1e6 / (time.monotonic() - begun), 1))
"""
    wanted = hashlib.sha256()
    for _ in range(size // len(block)):
        wanted.update(block)
    wanted.update(block[: size % len(block)])
    try:
        alone = [_timed(made) for _ in range(5)]
        ran = []
        loader = threading.Thread(
            target=lambda: ran.append(python(made, program, egress=big, timeout_s=100.0)), daemon=True
        )
        loader.start()
        attempts.until(lambda: attempts.all)
        during = []
        while loader.is_alive() and len(during) < 40:
            during.append(_timed(made))
        loader.join(100)
        assert ran[0].result.exit_code == 0, (ran, attempts.all)
        count, digest, speed = ran[0].stdout.split()
        middle = sorted(during)[len(during) // 2]
        assert (int(count), digest.decode()) == (size, wanted.hexdigest())
        _log.info(
            "%s MB/s; exec in ms: %s", speed.decode(), [round(x * 1000) for x in (max(alone), middle, max(during))]
        )
        assert len(during) >= 3
        assert middle < 0.5
        assert max(during) < 2.0
    finally:
        world[0].destroy(made.owner)
        server.close()


def _timed(sandbox) -> float:
    begun = time.monotonic()
    assert sandbox.exec(request("true"), lambda _: None).exit_code == 0
    return time.monotonic() - begun


ASK_TWICE = """
import os, sys, time, urllib.request
def ask():
    return urllib.request.urlopen(sys.argv[1], timeout=10).read().decode()
print(ask(), flush=True)
while not os.path.exists('go'):
    time.sleep(0.02)
print(ask(), flush=True)
"""


def test_egress_goes_on_after_the_connection_to_the_runner_was_lost(sandbox, site, allowed):
    ran, seen = [], threading.Event()

    def work():
        asked = request("python3", "-c", ASK_TWICE, f"http://a.web.test:{site.port}/", egress=allowed)
        output = bytearray()

        def collect(chunk):
            output.extend(chunk.data)
            seen.set()

        ran.append((sandbox.exec(asked, collect), output))

    loader = threading.Thread(target=work)
    loader.start()
    assert seen.wait(60)
    sandbox._client.latest.close()
    sandbox.files.write((FileWrite(path="go", content=b""),))
    loader.join(20)
    sandbox.files.write((FileWrite(path="go", content=None),))
    assert (ran[0][0].exit_code, bytes(ran[0][1])) == (0, b"hello\nhello\n")


def test_a_worker_that_takes_over_serves_the_egress_of_a_running_exec(world, engine, sandbox_image, site, allowed):
    made = world[0].open(spec(world[0]._instance, sandbox_image, egress=allowed))
    asked = request("python3", "-c", ASK_TWICE, f"http://a.web.test:{site.port}/", egress=allowed)
    seen, output = threading.Event(), bytearray()

    def first():
        with pytest.raises(Fault):
            made.exec(asked, lambda _: seen.set())

    loader = threading.Thread(target=first)
    loader.start()
    assert seen.wait(60)
    with Attempts.served() as attempts:
        successor = DockerSandboxes(world[0]._instance, Engine(engine.host), egress=attempts.egress)
        try:
            taken = successor.reattach(made.owner, 2)
            taken.files.write((FileWrite(path="go", content=b""),))
            result = taken.exec(asked, lambda chunk: output.extend(chunk.data))
            assert (result.exit_code, bytes(output)) == (0, b"hello\nhello\n")
            attempts.until(lambda: len(attempts.all) == 2)
            assert [item.phase for item in attempts.all] == [AttemptPhase.OPENED, AttemptPhase.CLOSED]
        finally:
            made.close()
            loader.join(20)
            successor.destroy(made.owner)
            successor.close()


def test_a_process_that_cannot_be_looked_into_is_refused(sandbox, site, allowed):
    hide = "import ctypes; ctypes.CDLL(None).prctl(4, 0)\n"
    ran = python(
        sandbox, f"import sys; sys.argv[1:] = ['http://a.web.test:{site.port}/']\n" + hide + FETCH, egress=allowed
    )
    assert ran.result.exit_code == 1
    assert b"403" in ran.stdout
