"""The database connection breaks while a call is accepted, waited for or cancelled: the agent gets what is known, and
the same call again does not run twice.
"""

from __future__ import annotations

import asyncio

import pytest

from codesdk.mcphost.tool_calls import handler, progress
from codesdk.storage.faults import CommitIndeterminate, DatabaseGone

ERAS = ["legacy", "auto"]
GONE = "The connection broke during a commit"


@pytest.fixture
def call(stack, helpers):
    """One call on a connection of its own."""

    def run(token, name, arguments, mode="auto"):
        async def go():
            async with stack.client(token, mode) as client:
                return await client.call_tool(name, arguments)

        return helpers.within(go())

    return run


def details(result):
    return result.meta["codesdk/call"]


def named(collect):
    return collect["tool"], collect["arguments"]


class Breaks:
    """A pipeline's writer whose next answer is lost, and a database that may not be read."""

    def __init__(self, stack, monkeypatch):
        self.stack = stack
        self.after = True
        """The commit is made before the connection breaks."""
        self.unreadable = False
        self._armed = False
        pipeline = stack.services.pipeline
        self._run, self._find = pipeline._writer.run, pipeline.find
        monkeypatch.setattr(stack.services.pipeline, "_writer", self)
        monkeypatch.setattr(stack.services.pipeline, "find", self.find)

    def arm(self, *, after, unreadable=False):
        self.after, self.unreadable, self._armed = after, unreadable, True

    def run(self, work):
        if not self._armed:
            return self._run(work)
        self._armed = False
        if self.after:
            self._run(work)
        raise CommitIndeterminate(GONE)

    def find(self, *place):
        if self.unreadable:
            raise DatabaseGone(GONE)
        return self._find(*place)


@pytest.fixture
def breaks(stack, monkeypatch):
    return Breaks(stack, monkeypatch)


@pytest.mark.parametrize("mode", ERAS)
def test_a_commit_that_happened_unheard_is_found_over_another_connection(stack, breaks, call, mode):
    _, token = stack.open_session()
    breaks.arm(after=True)
    result = call(token, "workspace_read", {"path": "a.txt"}, mode)
    if details(result)["status"] == "ready":  # it had ended by then
        result = call(token, *named(details(result)["collect"]), mode)
    assert (result.content[0].text, stack.worker.ran) == ("hello\n", ["workspace.read"])


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("happened", [True, False])
def test_where_nobody_knows_whether_it_was_taken_the_same_call_again_runs_it_at_most_once(
    breaks, helpers, call, mode, happened
):
    stack = breaks.stack
    session, token = stack.open_session()
    breaks.arm(after=happened, unreadable=True)
    first = call(token, "workspace_read", {"path": "a.txt"}, mode)
    told = details(first)
    assert (first.is_error, told["status"], told["code"], told["retryable"]) == (
        True,
        "unknown",
        "CALL_UNCERTAIN",
        True,
    )
    assert "not known whether this call was taken" in first.content[0].text
    if happened:
        helpers.eventually(lambda: "tool.call.completed" in stack.types(session))
    still = call(token, "workspace_read", {"path": "a.txt"}, mode)
    assert (details(still)["code"], "not run" in still.content[0].text) == ("DATABASE_GONE", True)
    breaks.unreadable = False
    again = call(token, "workspace_read", {"path": "a.txt"}, mode)
    if happened:
        assert details(again)["code"] == "RESULT_READY"
        assert details(again)["tool_call_id"] == told["tool_call_id"]
        again = call(token, *named(details(again)["collect"]), mode)
    assert (again.content[0].text, stack.worker.ran) == ("hello\n", ["workspace.read"])
    call(token, "workspace_read", {"path": "a.txt"}, mode)
    assert stack.worker.ran == ["workspace.read"] * 2  # what was answered is a call of its own again


@pytest.mark.parametrize("mode", ERAS)
def test_a_call_whose_end_cannot_be_read_in_its_time_is_not_said_to_have_not_run(
    stack, breaks, call, mode, monkeypatch
):
    session, token = stack.open_session()
    breaks.unreadable = True
    with monkeypatch.context() as short:
        short.setattr(handler, "CALL_MARGIN_S", -29.0)
        first = call(token, "workspace_read", {"path": "a.txt"}, mode)
    told = details(first)
    assert (told["status"], told["code"], told["retryable"]) == ("unknown", "RESULT_UNREADABLE", True)
    assert "was taken" in first.content[0].text
    assert details(call(token, *named(told["collect"]), mode))["code"] == "RESULT_UNREADABLE"
    breaks.unreadable = False
    again = call(token, "workspace_read", {"path": "a.txt"}, mode)
    assert details(again)["code"] == "RESULT_READY"
    result = call(token, *named(told["collect"]), mode)
    assert (result.content[0].text, stack.worker.ran) == ("hello\n", ["workspace.read"])
    assert stack.types(session).count("tool.call.started") == 1


def test_a_call_that_ended_before_its_cancel_came_through_is_collected_and_not_run_again(
    stack, helpers, call, monkeypatch
):
    monkeypatch.setattr(progress, "GRACE_S", 0.0)
    session, token = stack.open_session()
    cancel, too_late = stack.services.pipeline.cancel, []
    stack.worker.gate.clear()

    def late(*given):
        stack.worker.gate.set()
        helpers.eventually(lambda: "tool.call.completed" in stack.types(session))
        too_late.append(cancel(*given))
        return too_late[0]

    monkeypatch.setattr(stack.services.pipeline, "cancel", late)

    async def go():
        async with stack.client(token, "auto") as client:
            running = asyncio.create_task(client.call_tool("workspace_read", {"path": "a.txt"}))
            await asyncio.to_thread(helpers.eventually, lambda: stack.worker.ran)
            running.cancel()
            await asyncio.to_thread(helpers.eventually, lambda: too_late)

    helpers.within(go())
    assert too_late == [False]
    again = call(token, "workspace_read", {"path": "a.txt"})
    assert details(again)["code"] == "RESULT_READY"
    result = call(token, *named(details(again)["collect"]))
    assert (result.content[0].text, stack.worker.ran) == ("hello\n", ["workspace.read"])


def test_a_call_that_was_withdrawn_is_a_call_of_its_own_when_it_is_made_again(stack, helpers, call):
    _, token = stack.open_session()
    stack.worker.gate.clear()

    async def go():
        async with stack.client(token, "auto") as client:
            running = asyncio.create_task(client.call_tool("workspace_read", {"path": "a.txt"}))
            await asyncio.to_thread(helpers.eventually, lambda: stack.worker.ran)
            running.cancel()
            await asyncio.to_thread(helpers.eventually, lambda: stack.worker.cancelled)

    helpers.within(go())
    stack.worker.gate.set()
    again = call(token, "workspace_read", {"path": "a.txt"})
    assert (again.content[0].text, stack.worker.ran) == ("hello\n", ["workspace.read"] * 2)
