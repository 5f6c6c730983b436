"""Events kept for clients that reconnect."""

from __future__ import annotations

import asyncio

import mcp_types as types
from hypothesis import given
from hypothesis import strategies as st
from mcp.server import Server

from codesdk.mcphost.server import event_store
from codesdk.mcphost.server.event_store import ResumableSessionManager, SessionEventStore


def message(text):
    return types.JSONRPCNotification(jsonrpc="2.0", method="m", params={"text": text})


def kept(*sent):
    """The events of these (stream, text) pairs, and their ids."""
    events = SessionEventStore()

    async def store():
        return [await events.store_event(stream, message(text) if text is not None else None) for stream, text in sent]

    return events, asyncio.run(store())


def replayed(events, after):
    seen = []

    async def send(event):
        seen.append((event.event_id, event.message.params["text"]))

    return asyncio.run(events.replay_events_after(after, send)), seen


def test_a_client_gets_what_followed_on_its_own_stream_and_nothing_of_others():
    events, ids = kept(("1", None), ("2", "other"), ("1", "a"), ("1", "b"))
    assert replayed(events, ids[0]) == ("1", [(ids[2], "a"), (ids[3], "b")])
    assert replayed(events, ids[3]) == ("1", [])


def test_an_id_that_was_never_given_finds_nothing():
    events, _ = kept(("1", "a"))
    for odd in ("", "0", "99", "-1", "x", "1 "):
        assert replayed(events, odd) == (None, [])


@given(st.lists(st.tuples(st.sampled_from("123"), st.text(max_size=50)), min_size=1, max_size=40))
def test_what_is_kept_is_replayed_once_and_in_order(sent):
    events, ids = kept(*sent)
    for at, (stream, _) in enumerate(sent):
        after = [(ids[n], text) for n, (of, text) in enumerate(sent) if n > at and of == stream]
        assert replayed(events, ids[at]) == (stream, after)


def test_memory_is_bounded_and_the_newest_is_kept_whatever_its_size():
    events, ids = kept(*[("1", "x" * 1000)] * (event_store.MAX_EVENTS + 50), ("1", "y" * (event_store.MAX_BYTES + 1)))
    assert replayed(events, ids[0]) == (None, [])
    assert replayed(events, ids[-1]) == ("1", [])
    assert replayed(events, ids[-2]) == (None, [])


def test_each_mcp_session_has_events_of_its_own():
    manager = ResumableSessionManager(Server("test"))
    first, second = manager._admit_session(None), manager._admit_session(None)
    assert first._event_store is not second._event_store
