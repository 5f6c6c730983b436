"""The worker's side against a runner that lies, stalls or dies: in a tenant's image its frames are hostile input."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time

import pytest

from codesdk.sandbox.channel import files as workspace
from codesdk.sandbox.channel.connection import RunnerConnection
from codesdk.sandbox.channel.sandbox import RunnerSandbox
from codesdk.sandbox.egress.rules import EgressRule, EgressRules
from codesdk.sandbox.egress.service import BackgroundAllowances
from codesdk.sandbox.port import ExecRequest, FileWrite, SandboxSpec
from codesdk.sandbox.port.faults import (
    CallCancelled,
    EngineUnavailable,
    RunnerRefused,
    RunnerSilent,
    SandboxGone,
    StaleGeneration,
)
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.runner.protocol import wire

SPEC = SandboxSpec(owner="sbx_1", instance="t", profile=Profile(), image="sha256:x", tool_uid=200_001, generation=2)
ENDED = {
    "kind": "exited", "exit_code": 0, "stdout": {"bytes": 0, "dropped": 0}, "stderr": {"bytes": 0, "dropped": 0},
}  # fmt: skip


class SocketStream:
    """`link.Stream` over a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, timeout_s: float) -> bytes | None:
        self._socket.settimeout(max(timeout_s, 0.001))
        try:
            return self._socket.recv(1 << 16)
        except TimeoutError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def stderr_tail(self) -> str:
        return ""


class Liar:
    """A runner that greets properly and answers what a test wants."""

    def __init__(self, answer, *, accepts: bool = True) -> None:
        self._answer = answer
        self._accepts = accepts
        self.sockets: list[socket.socket] = []
        self.greeted = 0
        self.dies = threading.Event()
        """It says nothing more."""

    def connect(self) -> SocketStream:
        ours, theirs = socket.socketpair()
        self.sockets += [ours, theirs]
        threading.Thread(target=self._serve, args=(theirs,), daemon=True).start()
        return SocketStream(ours)

    def _serve(self, sock: socket.socket) -> None:
        decoder, nonce = wire.Decoder(), b""
        try:
            while data := sock.recv(1 << 16):
                for item in () if self.dies.is_set() else decoder.feed(data):
                    if isinstance(item, wire.Hello):
                        nonce = item.nonce
                        decoder.accept(nonce)
                        self.greeted += 1
                        sock.sendall(
                            b"noise" + wire.Ack(nonce, item.generation + (not self._accepts), self._accepts).encode()
                        )
                    elif item.header["op"] == "ping":
                        self._send(sock, nonce, item.number, {"re": item.number, "boot": "one"})
                    else:
                        for number, header, body in self._answer(item):
                            self._send(sock, nonce, number, header, body)
        except OSError:
            pass

    def _send(self, sock, nonce, number, header, body=b"") -> None:
        if header is None:
            sock.sendall(body)
            return
        for frame in wire.encode(nonce, number, header, body):
            sock.sendall(frame)

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


@pytest.fixture
def lying():
    made = []

    def make(answer, *, idle_s=RunnerConnection.IDLE_S, **more):
        liar = Liar(answer, **more)
        sandbox = RunnerSandbox(SPEC, liar.connect, lambda: None, idle_s=idle_s)
        sandbox._liar = liar
        made.append((liar, sandbox))
        return sandbox

    yield make
    for liar, sandbox in made:
        sandbox.close()
        liar.close()


def start(item, *events):
    key = {"call": item.header["call"], "attempt": item.header["attempt"]}
    yield item.number, {"re": item.number, "state": "started"}, b""
    for header, body in events:
        yield 0, {**key, **header}, body


def _exec(sandbox):
    return sandbox.exec(ExecRequest(call="c", argv=("true",), timeout_s=1), lambda _: None)


def test_an_honest_answer_is_taken(lying):
    assert _exec(lying(lambda item: start(item, ({"event": "exit", "result": ENDED}, b"")))).exit_code == 0


def test_a_gap_in_the_output_is_refused(lying):
    events = [({"event": "output", "stream": 0, "offset": 5}, b"x"), ({"event": "exit", "result": ENDED}, b"")]
    with pytest.raises(RunnerRefused, match="reports"):
        _exec(lying(lambda item: start(item, *events)))


def test_a_repeat_of_output_is_refused(lying):
    events = [
        ({"event": "output", "stream": 0, "offset": 0}, b"xy"),
        ({"event": "output", "stream": 0, "offset": 1}, b"y"),
    ]
    with pytest.raises(RunnerRefused, match="offset 1"):
        _exec(lying(lambda item: start(item, *events)))


@pytest.mark.parametrize(
    "count",
    [{"bytes": 6, "dropped": 5, "gap": 0}, {"bytes": 9, "dropped": 8, "gap": 1}, {"bytes": 5, "dropped": 5, "gap": 0}],
)
def test_one_gap_is_taken_when_the_end_accounts_for_it_exactly(lying, count):
    events = [
        ({"event": "output", "stream": 0, "offset": 5}, b"x"),
        ({"event": "exit", "result": {**ENDED, "stdout": count}}, b""),
    ]
    sandbox = lying(lambda item: start(item, *events))
    if count == {"bytes": 6, "dropped": 5, "gap": 0}:
        assert _exec(sandbox).stdout.dropped == 5
    else:
        with pytest.raises(RunnerRefused, match="reports"):
            _exec(sandbox)


def test_a_second_gap_is_refused(lying):
    events = [({"event": "output", "stream": 0, "offset": at}, b"x") for at in (5, 9)]
    with pytest.raises(RunnerRefused, match="offset 9"):
        _exec(lying(lambda item: start(item, *events)))


def test_an_end_that_counts_other_bytes_than_were_sent_is_refused(lying):
    events = [({"event": "output", "stream": 0, "offset": 0}, b"x"), ({"event": "exit", "result": ENDED}, b"")]
    with pytest.raises(RunnerRefused, match="reports"):
        _exec(lying(lambda item: start(item, *events)))


@pytest.mark.parametrize(
    "result", [None, [], {"kind": "success"}, {**ENDED, "extra": 1}, {**ENDED, "exit_code": "zero"}]
)
def test_an_end_that_makes_no_sense_is_refused(lying, result):
    with pytest.raises(RunnerRefused):
        _exec(lying(lambda item: start(item, ({"event": "exit", "result": result}, b""))))


def test_bytes_that_are_no_frames_end_as_gone_and_not_as_success(lying):
    with pytest.raises(SandboxGone):
        _exec(lying(lambda item: [(item.number, {"re": "x"}, b""), (0, None, b"\xff" * 100_000)]))


def test_answers_to_files_that_make_no_sense_are_refused(lying):
    sandbox = lying(lambda item: [(item.number, {"re": item.number, "content": "nothing"}, b"data")])
    with pytest.raises(RunnerRefused):
        sandbox.files.read("x")


def test_a_newer_worker_is_told_apart_from_a_dead_sandbox(lying):
    with pytest.raises(StaleGeneration, match="generation 3"):
        lying(lambda _: [], accepts=False).files.stat("x")


def test_a_runner_that_was_started_again_is_another_sandbox(lying):
    sandbox = lying(lambda item: [(item.number, {"re": item.number, "info": {}}, b"")])
    sandbox.cancel("c", 1)
    sandbox._client.boot = "another"
    sandbox._client.latest.close()
    with pytest.raises(SandboxGone, match="restarted"):
        sandbox.cancel("c", 1)


def test_a_connection_that_broke_before_sending_is_made_again(lying):
    sandbox = lying(lambda item: [(item.number, {"re": item.number, "ended": True}, b"")])
    assert sandbox.cancel("c", 1)
    sandbox._client.latest.close()
    assert sandbox.cancel("c", 1)


def test_a_connection_that_ended_while_it_rested_is_made_again(lying, monkeypatch):
    monkeypatch.setattr(RunnerConnection, "STALE_AFTER_S", 0.0)
    sandbox = lying(lambda item: [(item.number, {"re": item.number, "ended": True}, b"")])
    assert sandbox.cancel("c", 1)
    liar_s_end = sandbox._liar.sockets[1]
    liar_s_end.shutdown(socket.SHUT_RDWR)
    assert sandbox.cancel("c", 1)
    assert sandbox._liar.greeted == 2


def test_an_acknowledgement_is_not_waited_for_and_said_again_when_its_connection_is_lost(lying):
    heard = []

    def answer(item):
        heard.append(item.header["op"])
        if item.header["op"] == "ack" and heard.count("ack") == 1:
            return []  # its answer never comes
        return [(item.number, {"re": item.number, "ended": True}, b"")]

    sandbox = lying(answer)
    sandbox.acknowledge("c", 1)
    assert sandbox.cancel("c", 1)
    sandbox._client.latest.close()
    assert sandbox.cancel("c", 1)
    assert heard == ["ack", "cancel", "ack", "cancel"]
    assert sandbox._client.latest.unconfirmed() == []


def test_an_idle_connection_is_let_go_although_an_acknowledgement_was_not_answered(lying):
    sandbox = lying(lambda item: [(item.number, {"re": item.number}, b"")] * (item.header["op"] != "ack"), idle_s=0.05)
    sandbox.acknowledge("c", 1)
    until = time.monotonic() + 20
    while not sandbox._client.latest.lost:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert [header["op"] for header in sandbox._client.latest.unconfirmed()] == ["ack"]


def test_the_specification_of_an_exec_goes_before_its_stdin(lying):
    seen = []

    def answer(item):
        size = item.header["spec_bytes"]
        seen.append((json.loads(item.body[:size])["argv"], item.body[size:]))
        return start(item, ({"event": "exit", "result": ENDED}, b""))

    sandbox = lying(answer)
    sandbox.exec(ExecRequest(call="c", argv=("cat",), stdin=b"in", timeout_s=1), lambda _: None)
    assert seen == [(["cat"], b"in")]


@pytest.mark.parametrize(
    "words",
    [
        {}, {"stream": 0}, {"offset": 0}, {"stream": 2, "offset": 0}, {"stream": -1, "offset": 0},
        {"stream": "stdout", "offset": 0}, {"stream": None, "offset": 0}, {"stream": 0, "offset": []},
    ],
)  # fmt: skip
def test_output_whose_place_makes_no_sense_is_refused(lying, words):
    sandbox = lying(lambda item: start(item, ({"event": "output", **words}, b"x")))
    with pytest.raises(RunnerRefused):
        _exec(sandbox)


def test_more_output_than_was_asked_to_be_kept_is_refused(lying):
    piece = bytes(1 << 20)
    events = [
        ({"event": "output", "stream": 0, "offset": number * len(piece)}, piece)
        for number in range(SPEC.profile.keep_output_bytes // len(piece) + 2)
    ]
    came = []
    with pytest.raises(RunnerRefused, match="more output"):
        lying(lambda item: start(item, *events)).exec(
            ExecRequest(call="c", argv=("true",), timeout_s=20), lambda chunk: came.append(len(chunk.data))
        )
    assert sum(came) <= SPEC.profile.keep_output_bytes


@pytest.mark.parametrize("body", [b"[" * 60_000, b"[1, 2]", b"\xff", b""])
def test_a_probe_that_makes_no_sense_is_a_sandbox_that_is_gone(lying, body):
    events = [({"event": "output", "stream": 0, "offset": 0}, body)] * bool(body)
    with pytest.raises(SandboxGone):
        lying(lambda item: start(item, *events, ({"event": "exit", "result": ENDED}, b""))).observe()


def test_a_probe_that_never_stops_talking_is_not_listened_to_for_ever(lying):
    events = [({"event": "output", "stream": 0, "offset": at << 16}, bytes(1 << 16)) for at in range(32)]
    with pytest.raises(RunnerRefused, match="more output"):
        lying(lambda item: start(item, *events)).observe()


ANSWERS = [{}, {"refused": "NO_SUCH_WORD", "path": "x", "message": ""}, {"refused": "NOT_FOUND"}, {"info": {"path": 1}}]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("body", [b"", b"nonsense", b'{"a": 1}', b"[[1, 2]]", b"[" * 60_000])
@pytest.mark.parametrize(
    "ask",
    [
        lambda files: files.stat("x"), lambda files: files.list("."), lambda files: files.manifest(),
        lambda files: files.write((FileWrite(path="x", content=b""),)), lambda files: files.delete("x"),
        lambda files: files.watch(), lambda files: files.changes("w"), lambda files: files.read("x"),
        lambda files: files.make_directory("x"), lambda files: files.move("x", "y"),
    ],
)  # fmt: skip
def test_whatever_is_answered_about_files_is_a_value_or_refused_and_never_a_defect(lying, ask, answer, body):
    sandbox = lying(lambda item: [(item.number, {"re": item.number, **answer}, body)])
    with contextlib.suppress(RunnerRefused, SandboxGone):
        assert ask(sandbox.files) is not None


def test_a_removal_does_not_wait_for_a_runner_that_never_greets(lying):
    begun = threading.Event()
    liar = Liar(lambda _: [])

    def connect():
        ours, theirs = socket.socketpair()
        liar.sockets += [ours, theirs]
        begun.set()
        return SocketStream(ours)

    sandbox = RunnerSandbox(SPEC, connect, lambda: None)
    said = []

    def ask():
        with pytest.raises(SandboxGone) as gone:
            sandbox.files.stat("x")
        said.append(gone.value)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert begun.wait(10)
    began = time.monotonic()
    sandbox.end("it was destroyed")
    asking.join(10)
    assert said
    assert time.monotonic() - began < 12  # a greeting may take fifteen
    with pytest.raises(SandboxGone, match="destroyed"):
        sandbox.files.stat("x")
    liar.close()


class Restarted:
    """An engine that is away until it is `back`, with an honest runner behind it."""

    def __init__(self, answer):
        self.liar = Liar(answer)
        self.back, self.asked = threading.Event(), threading.Event()
        self.sandbox = RunnerSandbox(SPEC, self.connect, lambda: None)

    def connect(self):
        self.asked.set()
        if not self.back.is_set():
            raise EngineUnavailable("unix:///run/docker.sock", "refused")
        return self.liar.connect()

    def begin(self, **more):
        """An exec on a thread; `.outcome` is its result or its fault."""

        def work():
            try:
                thread.outcome = self.sandbox.exec(ExecRequest(call="c", argv=("true",), **more), lambda _: None)
            except Exception as error:  # noqa: BLE001 - looked at by the test
                thread.outcome = error

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def restarted():
    heard = []

    def answer(item):
        heard.append(item.header["op"])
        if item.header["op"] == "cancel":
            return [(item.number, {"re": item.number, "ended": False}, b"")]
        return start(item, ({"event": "exit", "result": ENDED}, b""))

    made = Restarted(answer)
    made.heard = heard
    yield made
    made.back.set()
    made.sandbox.close()
    made.liar.close()


def test_a_cancel_ends_the_wait_of_an_exec_whose_engine_was_away_before_it_was_asked_for(restarted):
    waiting = restarted.begin()
    assert restarted.asked.wait(20)
    began = time.monotonic()
    assert restarted.sandbox.cancel("c", 1)
    waiting.join(20)
    assert isinstance(waiting.outcome, CallCancelled)
    assert time.monotonic() - began < 15, "a cancel does not wait for the engine"
    restarted.back.set()
    restarted.sandbox.acknowledge("other", 1)
    assert "start" not in restarted.heard
    assert restarted.begin().join(20) is None, "it is withdrawn once: whoever asks again is served"
    assert restarted.heard.count("start") == 1


def test_what_an_earlier_worker_may_have_begun_is_waited_for_also_when_it_is_cancelled(restarted):
    waiting = restarted.begin(taken_up=True)
    assert restarted.asked.wait(20)
    with pytest.raises(EngineUnavailable):
        restarted.sandbox.cancel("c", 1)
    restarted.back.set()
    waiting.join(20)
    assert waiting.outcome.exit_code == 0


@pytest.mark.parametrize("taken_up", [False, True])
def test_a_cancel_is_heard_by_an_exec_that_stands_back_for_a_snapshot(lying, taken_up):
    held = threading.Event()

    def answer(item):
        held.set()
        return [(item.number, {"re": item.number, "error": "BUSY", "held": True}, b"")]

    sandbox, said = lying(answer), []

    def work():
        try:
            sandbox.exec(ExecRequest(call="c", argv=("true",), taken_up=taken_up), lambda _: None)
        except CallCancelled as withdrawn:
            said.append(withdrawn)

    waiting = threading.Thread(target=work, daemon=True)
    waiting.start()
    assert held.wait(20)
    until = time.monotonic() + 20
    while not sandbox.cancel("c", 1):  # it came between a start and its answer
        assert time.monotonic() < until
    waiting.join(20)
    assert said


def test_a_file_operation_that_hangs_costs_what_runs_beside_it_nothing(lying, monkeypatch):
    monkeypatch.setattr(workspace, "LONG_TIMEOUT_S", 0.1)
    begun, go_on, said = threading.Event(), threading.Event(), []

    def answer(item):
        if item.header["op"] != "start":
            return
        yield from start(item)
        begun.set()
        assert go_on.wait(20)
        yield 0, {"call": "c", "attempt": 1, "event": "exit", "result": ENDED}, b""

    def at_once(item):  # an honest runner's loop goes on meanwhile
        def later():
            for each in answer(item):
                sandbox._liar._send(sandbox._liar.sockets[1], sandbox._client.latest._nonce, *each)

        threading.Thread(target=later, daemon=True).start()
        return []

    sandbox = lying(at_once)
    running = threading.Thread(target=lambda: said.append(_exec(sandbox)), daemon=True)
    running.start()
    assert begun.wait(20)
    with pytest.raises(RunnerSilent, match="delete") as silent:
        sandbox.files.delete("x")
    assert not silent.value.retryable
    go_on.set()
    running.join(20)
    assert said[0].exit_code == 0
    assert sandbox._liar.greeted == 1, "the connection was left as it was"


class Slow:
    """A runner that carries out files' operations when it is told to, over a connection that goes on meanwhile."""

    def __init__(self, lying):
        self.asked, self.ops = threading.Event(), []
        self._waiting = []
        self.sandbox = lying(self._answer)

    def _answer(self, item):
        self.ops.append(item.header["op"])
        if item.header["op"] == "cancel":
            return [(item.number, {"re": item.number, "ended": False}, b"")]
        self._waiting.append(item.number)
        self.asked.set()
        return []

    def go_on(self, header):
        liar, nonce = self.sandbox._liar, self.sandbox._client.latest._nonce
        waiting, self._waiting = self._waiting, []
        self.asked.clear()
        for number in waiting:
            liar._send(liar.sockets[1], nonce, number, {"re": number, **header})

    def ask(self, operation):
        """An operation of call c on a thread; `.outcome` is its result or its fault."""

        def work():
            try:
                thread.outcome = operation(self.sandbox.files_of("c", 1))
            except Exception as error:  # noqa: BLE001 - looked at by the test
                thread.outcome = error

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert self.asked.wait(20)
        return thread


def test_a_cancelled_call_that_reads_waits_no_longer_and_its_late_answer_disturbs_nobody(lying):
    slow = Slow(lying)
    reading = slow.ask(lambda files: files.stat("x"))
    began = time.monotonic()
    assert not slow.sandbox.cancel("c", 1)
    reading.join(20)
    assert time.monotonic() - began < 15, "a cancel does not wait for the engine"
    assert isinstance(reading.outcome, CallCancelled)
    assert reading.outcome.was_sent
    slow.go_on({"refused": "NOT_FOUND", "path": "x", "message": "late"})
    assert not slow.sandbox.cancel("d", 1)
    assert slow.sandbox._liar.greeted == 1


def test_a_cancelled_call_that_changes_a_file_ends_as_the_change_does_and_asks_for_nothing_more(lying):
    slow = Slow(lying)
    deleting = slow.ask(lambda files: files.delete("x"))
    slow.sandbox.cancel("c", 1)
    slow.go_on({"deleted": 3})
    deleting.join(20)
    assert deleting.outcome == 3
    with pytest.raises(CallCancelled) as withdrawn:
        slow.sandbox.files_of("c", 1).delete("y")
    assert not withdrawn.value.was_sent
    slow.sandbox.acknowledge("c", 1)
    slow.sandbox._cancelled_calls.check(("c", 1))  # its end is recorded: it is forgotten
    slow.sandbox.cancel("d", 1)
    assert slow.ops == ["delete", "cancel", "ack", "cancel"]


def test_an_upload_that_was_begun_is_ended_though_its_call_is_cancelled(lying):
    slow = Slow(lying)

    def pieces():
        slow.sandbox.cancel("c", 1)
        yield b"x"

    uploading = slow.ask(lambda files: files.upload("x", pieces()))
    for answer in ({"id": "u"}, {"refused": "NO_SPACE", "path": "x", "message": "full"}, {}):
        assert slow.asked.wait(20)
        slow.go_on(answer)
    uploading.join(20)
    assert uploading.outcome.error.value == "NO_SPACE"
    assert slow.ops == ["upload.open", "cancel", "upload.append", "upload.abort"]


def test_a_runner_that_answers_nobody_is_given_up(lying, monkeypatch):
    monkeypatch.setattr(RunnerConnection, "PING_S", 0.1)
    monkeypatch.setattr(workspace, "LONG_TIMEOUT_S", 0.1)
    sandbox = lying(lambda _: [])
    sandbox.acknowledge("c", 1)
    sandbox._liar.dies.set()
    with pytest.raises(SandboxGone):
        sandbox.files.delete("x")
    assert sandbox._client.latest.lost


def test_acknowledgements_that_nobody_answers_are_not_kept_without_end(lying, monkeypatch):
    monkeypatch.setattr(RunnerConnection, "MAX_UNCONFIRMED", 3)
    sandbox = lying(lambda _: [])
    for number in range(10):
        sandbox.acknowledge("c", number)
    assert [header["attempt"] for header in sandbox._client.latest.unconfirmed()] == [7, 8, 9]


class Granting:
    """The egress service's part that counts here: what was granted and is not ended."""

    def __init__(self):
        self.open = []

    def grant(self, *_):
        self.open.append(object())
        return self.open[-1]

    def end(self, lease):
        self.open.remove(lease)


def test_a_background_exec_that_is_started_twice_has_one_lease_until_it_is_forgotten():
    granting = Granting()
    leases = BackgroundAllowances("sbx_1", granting)
    rules = EgressRules(rules=(EgressRule(host="a.example"),))
    for key in (("c", 1), ("c", 1), ("d", 1)):
        leases.grant(key, rules, rules)
    assert len(granting.open) == 2
    leases.end(("c", 1))
    leases.end(("unknown", 1))
    assert len(granting.open) == 1
    leases.end_all()
    assert granting.open == []
