"""A hostile MCP server: its calls end with typed faults; its worker and other calls continue."""

from __future__ import annotations

import json
import time

import pytest

from codesdk.registry import ToolWithheld
from codesdk.sources.faults import SourceDied, SourceFault, SourceTimeout
from source_stage import until

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def _others_go_on(fx):
    """Whatever a test does to its server: a call of another session is answered meanwhile and after."""
    other = fx.stage.open_session()
    assert fx.desk.call(fx.asked("echo", session=other.session_id, text="before")).text == "before"
    yield
    assert fx.desk.call(fx.asked("echo", session=other.session_id, text="after")).text == "after"


def test_a_flood_of_messages_ends_the_server(fx):
    # On a machine that is too busy for a flood it only takes too long.
    with pytest.raises((SourceDied, SourceTimeout), match=r"sends more than can be processed|did not answer"):
        fx.call("flood")


def test_a_huge_message_ends_the_server(fx):
    with pytest.raises(SourceDied, match=r"sent a message of more than 4194304 bytes"):
        fx.call("huge")


def test_endless_garbage_on_stdout_ends_the_server(fx):
    with pytest.raises(SourceDied, match="lines to stdout that are not messages"):
        fx.call("garbage")


def test_some_noise_on_stdout_is_borne(fx):
    assert fx.call("noise").text == "noisy"


@pytest.mark.parametrize("name", ["deep", "utf8", "hang"])
def test_an_answer_that_is_none_is_no_answer_and_the_call_ends_in_its_time(fx, name):
    with pytest.raises(SourceTimeout):
        fx.desk.call(fx.asked(name, timeout_s=2.0))
    assert fx.call("echo", text="it lives on").text == "it lives on"


def test_a_server_that_dies_in_a_call_says_how(fx):
    with pytest.raises(SourceDied, match=r"exit code 3; last line: I am leaving"):
        fx.call("die")


def test_answers_to_requests_that_nobody_made_go_nowhere(fx):
    assert fx.call("swap").text == "mine"
    assert fx.call("echo", text="still in step").text == "still in step"


def test_a_server_may_ask_for_nothing(fx):
    assert json.loads(fx.call("asks").text) == [-32600, -32600, -32600, -32601]


def test_what_a_server_says_of_itself_after_it_was_accepted_is_shown_to_nobody(fx):
    before = fx.registry.shared.resolve("fx.echo").description
    assert fx.call("change").text == "changed"
    until(lambda: fx.registry.refresh() or fx.registry.shared.resolve("fx.echo").withheld, "it is taken away")
    assert fx.registry.shared.resolve("fx.echo").description == before
    with pytest.raises(ToolWithheld):
        fx.call("echo", text="x")
    fx.clock.ahead += 3600
    fx.desk.tend()  # the next one is honest again, and the tool is back
    assert fx.call("add", a=1, b=1).structured == {"sum": 2}
    fx.registry.refresh()
    assert not fx.registry.shared.resolve("fx.echo").withheld


def test_a_server_has_no_network_and_sees_no_other_servers_files(fx):
    seen = json.loads(fx.call("look").text)
    assert seen["interfaces"] == ["lo"]
    assert seen["uid"] >= 200_000
    assert seen["workspace"] == []
    assert not seen["reaches"]


def test_progress_without_end_is_bounded_and_the_call_ends(fx):
    fx.lines.clear()
    began = time.monotonic()
    with pytest.raises((SourceTimeout, SourceFault)):
        fx.desk.call(fx.asked("slow", timeout_s=3.0))
    assert time.monotonic() - began < 60
    assert sum(map(len, fx.lines)) < 40_000
