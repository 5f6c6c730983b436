"""A remote server that floods, hangs, lies and changes: each call ends, no redirect is followed, the next call is
served.
"""

from __future__ import annotations

import pytest

from codesdk.registry import ToolWithheld
from codesdk.sources.faults import SourceDied, SourceFault, SourceTimeout
from codesdk.sources.starters import remote
from databases import SqliteDatabases
from far_sources import Reached, served
from fixtures.sources.far_server import FarServer
from local_sandboxes import local_sandboxes, plain
from source_stage import until
from stage import staged


@pytest.fixture(scope="module")
def far():
    made = FarServer()
    with served(made) as made.url:
        yield made


@pytest.fixture(scope="module")
def accepted(far, tmp_path_factory):
    """A stage for many facts."""
    root = tmp_path_factory.mktemp("far")
    databases = SqliteDatabases(root)
    with local_sandboxes(plain()) as here, staged(root, databases.migrated()) as stage:
        made = Reached(stage, here, here._instance, here.image, argv=[], url=far.url)
        made.accept()
        made.clock.stop()  # a flood is one by its number, however slow the machine is
        yield made
        made.close()
    databases.close()


@pytest.fixture
def fx(accepted, far):
    """The accepted server, for which nothing that went wrong before counts."""
    accepted.clock.ahead += 3600
    accepted.desk.tend()
    far.calls.clear()
    yield accepted
    far.floods = False
    accepted.clock.ahead += 3600
    accepted.desk.tend()
    assert accepted.call("echo").text == "hello"


@pytest.mark.parametrize("name", ["chatter", "comments", "asks"])
def test_a_flood_on_a_calls_stream_ends_the_conversation(fx, name):
    with pytest.raises(SourceDied, match="sends more than can be processed"):
        fx.desk.call(fx.asked(name, timeout_s=90))


def test_a_flood_on_the_standing_stream_ends_the_conversation(fx, far):
    far.floods = True

    def died():
        try:
            fx.call("echo")
        except SourceFault as fault:
            return fault.what
        return ""

    assert "sends more than can be processed" in until(died, "the flood was noticed")


def test_a_stream_that_breaks_off_again_and_again_is_not_taken_up_for_ever(fx, far):
    with pytest.raises(SourceDied, match="sends more than can be processed"):
        fx.desk.call(fx.asked("again", timeout_s=90))
    assert far.taken_up <= 100 + 1
    assert far.calls.count("again") == 1


@pytest.mark.parametrize("name", ["event", "body"])
def test_an_answer_of_64_mib_is_not_taken(fx, name):
    with pytest.raises(SourceFault):
        fx.call(name)


@pytest.mark.parametrize("name", ["page", "deep"])
def test_an_answer_that_is_none_is_a_fault(fx, name):
    with pytest.raises(SourceFault):
        fx.call(name)


@pytest.mark.parametrize("name", ["middle", "silent"])
def test_an_answer_that_stops_in_the_middle_ends_in_the_calls_time(fx, name):
    with pytest.raises(SourceTimeout):
        fx.desk.call(fx.asked(name, timeout_s=0.5))


def test_an_answer_to_a_request_that_nobody_made_goes_nowhere(fx, far):
    far.held.clear()
    with pytest.raises(SourceTimeout):
        fx.desk.call(fx.asked("other", timeout_s=0.5))


def test_a_redirect_of_a_call_is_not_followed_and_carries_nothing_elsewhere(fx, far):
    other = FarServer()
    with served(other) as far.elsewhere, pytest.raises(SourceFault):
        fx.call("away")
    assert (other.calls, other.answers, other.taken_up) == ([], [], 0)


@pytest.mark.parametrize("how", ["change", "swap"])
def test_a_tool_that_is_described_otherwise_after_it_was_accepted_is_taken_away(fx, far, how):
    try:
        assert fx.call(how).text == "changed"
        if how == "swap":  # it does not tell: found out by the next conversation
            fx.clock.ahead += 3600
            fx.desk.tend()
            fx.call(how)
        until(lambda: (fx.registry.refresh(), fx.registry.shared.resolve("fx.echo").withheld)[1], "it is withheld")
        with pytest.raises(ToolWithheld):
            fx.call("echo")
    finally:
        far.description = "Says it again."


def test_what_it_may_say_in_a_window_is_what_a_server_in_a_sandbox_may(monkeypatch):
    now, ended = [0.0], []
    bears = remote._rate_check(lambda: now[0], ended.append)
    assert all(bears(100, 8) for _ in range(remote.MAX_MESSAGES))
    assert not bears(100, 8)
    now[0] += 60
    assert bears(100, 8)
    assert ended == ["sends more than can be processed"]
