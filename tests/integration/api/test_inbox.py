"""The inbox on a terminal and answers to many at once, against a real API."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from itertools import chain

import pytest

from codesdk.approvals import ApprovalState, Verdict, store
from codesdk.cli.api_client import ApiClient
from codesdk.cli.approval.approvals import ApprovalSelection, _selected
from codesdk.cli.approval.inbox import Inbox
from codesdk.cli.approval.pending_approvals import PendingApprovals
from codesdk.errors import Fault
from codesdk.sessions import NewSession
from codesdk.tenancy.principal import Role
from stage import wait_for

LIMIT_S = 90.0


@pytest.fixture(scope="module")
def standing(tmp_path_factory, helpers):
    """A stack in which a session may flood people with questions."""
    no_limits = {"asks_per_minute": 0, "asks_per_minute_of_tenant": 0, "asks_waiting": 0}
    with helpers.running(tmp_path_factory.mktemp("standing"), 10.0, **no_limits) as built:
        yield built


@pytest.fixture
def key(standing):
    services = standing.services
    return services.writer.run(lambda unit: services.directory.enroll(unit, "inbox", "ann", tuple(Role)))[1]


@pytest.fixture
def daemon(standing, key):
    with ApiClient(standing.url, key) as opened:
        yield opened


@pytest.fixture
def subject(standing, daemon):
    return standing.services.directory.subject(daemon.open_session(NewSession()).token)


@pytest.fixture
def ask(standing, subject):
    def submit(number):
        services = standing.services
        waiting = services.pipeline.submit("workspace.exec", {"command": f"make {number}"}, subject)
        wait_for(lambda: asked(services.database.read, waiting.approval_id), "the files that it names were looked at")
        return waiting

    return submit


def asked(reading, approval):
    with reading() as connection:
        return store.find(connection, approval) is not None


def watched(daemon, subject, keys):
    """What the inbox says when these keys are pressed, one at each look."""
    said = []
    pressed = iter(keys)
    with PendingApprovals(daemon, subject.session_id) as pending:
        Inbox(daemon, pending, said.append, lambda _: next(pressed, "q")).run()
    return said


def states(daemon, *waiting):
    return [daemon.approval(each.approval_id).state for each in waiting]


def test_questions_are_answered_oldest_first_with_one_key_each(daemon, subject, ask):
    first, second, third, fourth = (ask(number) for number in range(4))
    said = watched(daemon, subject, ["a", "r", "s", "q"])
    assert states(daemon, first)[0] in (ApprovalState.APPROVED, ApprovalState.CONSUMED)
    assert states(daemon, second, third, fourth) == [ApprovalState.REJECTED, *[ApprovalState.PENDING] * 2]
    assert any(line.startswith("Command    make 0") for line in said)


def test_what_waits_of_one_rule_is_listed_and_answered_together(daemon, subject, ask):
    batch = [ask(number) for number in range(3)]
    said = watched(daemon, subject, ["R"])
    assert states(daemon, *batch) == [ApprovalState.REJECTED] * 3
    assert [line for line in said if line.startswith("Also")] == [
        f"Also       {each.approval_id} make {number}" for number, each in enumerate(batch) if number
    ]


def test_one_that_somebody_else_answers_meanwhile_is_told_and_left(daemon, subject, ask):
    waiting = ask(0)

    told = []

    def keys():
        yield ""
        daemon.vote(daemon.approval(waiting.approval_id), Verdict.REJECT)
        deadline = time.monotonic() + LIMIT_S
        while not told and time.monotonic() < deadline:
            time.sleep(0.02)  # the key that nobody presses
            yield ""

    with PendingApprovals(daemon, subject.session_id) as pending:
        pressed = keys()
        say = lambda line: told.append(line) if "now." in line else None  # noqa: E731
        Inbox(daemon, pending, say, lambda _: next(pressed, "q")).run()
    assert told == [f"{waiting.approval_id} is rejected now."]


def test_a_question_that_comes_while_nothing_waits_rings_and_is_put(daemon, subject, ask):
    with PendingApprovals(daemon, subject.session_id) as pending:
        assert pending.waiting() == []
        os.read(pending.wakeup_fd, 1024)
        waiting = ask(0)
        assert select.select([pending.wakeup_fd], [], [], LIMIT_S)[0]
        assert [each.id for each in pending.waiting()] == [waiting.approval_id]
        daemon.vote(daemon.approval(waiting.approval_id), Verdict.REJECT)
        wait_for(lambda: pending.waiting() == [], "the answer was told", LIMIT_S)


def test_an_inbox_of_somebody_who_may_not_see_approvals_says_so_at_once(standing):
    services = standing.services
    _, key = services.writer.run(lambda unit: services.directory.enroll(unit, "inbox", "nobody", ()))
    with ApiClient(standing.url, key) as daemon, pytest.raises(Fault, match="role"), PendingApprovals(daemon, None):
        pass


def test_a_flood_of_one_rule_is_answered_whole_beyond_a_page_and_nothing_that_came_later(daemon, subject, ask):
    many = [ask(number).approval_id for number in range(205)]
    with PendingApprovals(daemon, subject.session_id) as pending:
        assert [each.id for each in pending.waiting()] == many
    rule = daemon.approval(many[0]).rules[0]
    chosen = _selected(daemon, ApprovalSelection(rule=rule, session=subject.session_id))
    first = next(chosen)
    late = ask("late")
    answered = [daemon.vote(shown, Verdict.REJECT).id for shown in chain([first], chosen)]
    assert sorted(answered) == sorted(many)
    assert states(daemon, late) == [ApprovalState.PENDING]


class Terminal:
    """A program's terminal, from the other side."""

    def __init__(self, master, slave):
        self._master = master
        self._slave = slave
        self._shown = ""

    def shows(self, text):
        """Wait until it stands there, after what was waited for before."""
        deadline = time.monotonic() + 2 * LIMIT_S
        while text not in self._shown:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} is not in {self._shown!r}"
            if select.select([self._master], [], [], left)[0]:
                self._shown += os.read(self._master, 65536).decode("utf-8", "replace")
        self._shown = self._shown.partition(text)[2]

    def press(self, pressed):
        os.write(self._master, pressed.encode())

    @property
    def attributes(self):
        return termios.tcgetattr(self._slave)

    @property
    def waits_for_enter(self):
        return bool(self.attributes[3] & termios.ICANON)

    @property
    def echoes(self):
        return bool(self.attributes[3] & termios.ECHO)


@contextmanager
def on_a_terminal(*words, env):
    """`codesdk` as a program of its own on a new terminal, which is nobody's controlling one."""
    master, slave = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "codesdk.cli", *words],
            env={**os.environ, "TERM": "dumb", "NO_COLOR": "1", **env},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        ) as program:
            try:
                yield Terminal(master, slave), program
            finally:
                program.kill()
    finally:
        os.close(master)
        os.close(slave)


@pytest.fixture
def terminal_of_ann(standing, subject, key, tmp_path):
    """Opens the inbox of the session on a terminal."""
    own = tmp_path / "ann.key"
    own.write_text(key)
    own.chmod(0o600)
    words = ["approvals", "watch", "--session", subject.session_id, "--data-dir", str(standing.settings.data_dir)]
    return lambda: on_a_terminal(*words, env={"CODESDK_OPERATOR_KEY_FILE": str(own)})


def test_the_whole_program_on_a_terminal_shows_questions_takes_single_keys_and_leaves_it_as_it_was(
    terminal_of_ann, daemon, ask
):
    with terminal_of_ann() as (terminal, program):
        before = terminal.attributes
        assert (terminal.waits_for_enter, terminal.echoes) == (True, True)
        terminal.shows("Waiting for approvals: a approves, r rejects, s skips, q quits.")
        assert (terminal.waits_for_enter, terminal.echoes) == (False, False)
        first = ask(1)
        terminal.shows("Command    make 1")
        terminal.shows("1 waiting: ")
        terminal.press("x")  # a key that means nothing
        terminal.press("r")
        terminal.shows(f"{first.approval_id} is rejected now.")
        left = ask(2)
        terminal.shows("Command    make 2")
        terminal.press("sq")  # typed ahead
        assert program.wait(2 * LIMIT_S) == 0
        assert terminal.attributes == before
    assert states(daemon, first, left) == [ApprovalState.REJECTED, ApprovalState.PENDING]


def test_a_signal_ends_the_program_and_leaves_the_terminal_as_it_was(terminal_of_ann):
    with terminal_of_ann() as (terminal, program):
        before = terminal.attributes
        terminal.shows("Waiting for approvals")
        assert not terminal.echoes
        program.terminate()
        assert program.wait(2 * LIMIT_S) != 0
        assert terminal.attributes == before
