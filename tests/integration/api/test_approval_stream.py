"""A tenant's approvals as a stream: each change once, in order, across reconnects, for everyone who may list them."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from codesdk.api import approval_stream
from codesdk.api import event_stream as streams
from codesdk.api.approval_stream import ApprovalStream, FeedPoller
from codesdk.api.cursor import StartPosition
from codesdk.approvals import Verdict
from codesdk.tenancy.principal import Role
from databases import ON_BOTH
from frames import Reader, parsed
from stage import wait_for


@pytest.fixture
def watch(stack):
    key = stack.key()

    @contextmanager
    def connect(last=None, key=key, **query):
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        with (
            stack.http(key) as client,
            client.stream("GET", "/v1/approvals/events", headers=headers, params=query) as answer,
        ):
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield Reader(parsed(answer.iter_lines()))

    return connect


def ask(stack, token, line="make"):
    subject = stack.services.directory.subject(token)
    return stack.services.pipeline.submit("workspace_exec", {"command": line}, subject)


def vote(stack, session, verdict=Verdict.APPROVE):
    asked = stack.pending(session)
    stack.services.pipeline.vote(
        session.tenant_id, asked.id, verdict, digest=asked.digest, by=session.principal_id, comment=None
    )
    return asked


def kinds(frames):
    return [frame["event"] for frame in frames]


@ON_BOTH
def test_a_reader_is_told_where_it_is_and_then_of_everything_once(stack, watch):
    session, token = stack.open_session()
    stack.worker.paused = True
    with watch() as reader:
        (start,) = reader.take(1)
        assert (start["event"], start["id"], start["data"]["head"]) == ("start", "0-0", 0)
        ask(stack, token)
        (requested,) = reader.take(1)
        asked = vote(stack, session)
        voted, decided = reader.take(2)
    assert kinds([requested, voted, decided]) == ["approval.requested", "approval.voted", "approval.decided"]
    assert [frame["id"] for frame in (requested, voted, decided)] == ["0-1", "0-2", "0-3"]
    assert requested["data"]["approval"]["id"] == asked.id
    assert (decided["data"]["approval"]["state"], decided["data"]["by"]) == ("approved", session.principal_id)
    with watch(requested["id"]) as reader:
        assert reader.take(2) == [voted, decided]


@pytest.mark.parametrize("place", ["another-0", "0-999"])
def test_a_place_that_cannot_be_served_is_told_so_and_the_reader_follows_from_now(stack, watch, place):
    session, token = stack.open_session()
    ask(stack, token)
    stack.pending(session)
    with watch(place) as reader:
        (resync,) = reader.take(1)
        assert (resync["event"], resync["id"]) == ("resync", "0-1")
        vote(stack, session, Verdict.REJECT)
        assert kinds(reader.take(2)) == ["approval.voted", "approval.decided"]


def test_a_reader_of_one_session_passes_the_others_over_and_keeps_its_place(stack, watch):
    session, token = stack.open_session()
    _, other = stack.open_session()
    with watch(session_id=session.id) as reader:
        reader.take(1)
        ask(stack, other)
        ask(stack, token)
        (frame,) = reader.take(1)
    assert frame["data"]["approval"]["session_id"] == session.id
    assert frame["id"] in ("0-1", "0-2")


def test_another_tenants_reader_hears_nothing_of_it(stack, watch):
    _, token = stack.open_session()
    enroll = stack.services.directory.enroll
    _, theirs = stack.services.writer.run(lambda unit: enroll(unit, "other", "eve", (Role.APPROVER,)))
    with watch(key=theirs) as far, watch() as near:
        assert far.take(1)[0]["data"]["head"] == 0
        near.take(1)
        ask(stack, token)
        near.take(1)
        enrolled = stack.services.directory.principal(theirs)
        assert stack.services.approvals.feeds.page(enrolled.tenant_id, 0) == []


@pytest.mark.parametrize("end", ["UPDATE api_keys SET revoked_at = 1", "UPDATE principals SET roles = '[]'"])
def test_a_reader_that_may_not_see_approvals_any_more_is_sent_away(stack, watch, monkeypatch, end):
    monkeypatch.setattr(approval_stream, "RECHECK_S", 0.3)
    with watch() as reader:
        reader.take(1)
        stack.services.writer.run(lambda unit: unit.connection.execute(text(end)))
        *_, last = reader.rest()
    assert last["event"] == "evicted"
    assert "may not read this any more" in last["data"]["reason"]


def test_a_reader_that_takes_nothing_is_given_up_and_leaves_nothing_behind(stack, helpers, monkeypatch):
    monkeypatch.setattr(streams, "SEND_TIMEOUT_S", 0.2)
    readers, tenant = streams.OpenStreams(0), stack.open_session()[0].tenant_id

    async def go():
        poller = FeedPoller(stack.services.approvals.feeds, 0.05)
        stream = ApprovalStream(
            feeds=stack.services.approvals.feeds,
            poller=poller,
            readers=readers,
            tenant=tenant,
            begin=StartPosition("0", 0, None),
            session=None,
            recheck=lambda: None,
        )

        async def send(message):
            if message["type"] == "http.response.body":
                await asyncio.sleep(60)

        async def receive():
            await asyncio.sleep(60)

        await stream({}, receive, send)
        return poller

    poller = helpers.within(go(), 20.0)
    assert readers._readers == {}
    assert poller._waiting == {}


def test_a_page_says_what_happened_after_a_place(stack):
    session, token = stack.open_session()
    _, other = stack.open_session()
    ask(stack, token)
    ask(stack, other)
    vote(stack, session)
    with stack.http(stack.key()) as client:
        whole = client.get("/v1/approvals/events").json()
        rest = client.get("/v1/approvals/events", params={"after": "0-1", "session_id": session.id}).json()
        lost = client.get("/v1/approvals/events", params={"after": "other-1"}).json()
    assert [each["number"] for each in whole["news"]] == [1, 2, 3, 4]
    assert (whole["next"], whole["head"], rest["next"]) == ("0-4", 4, "0-4")
    assert [each["kind"] for each in rest["news"]][-2:] == ["voted", "decided"]
    assert {each["approval"]["session_id"] for each in rest["news"]} == {session.id}
    assert (lost["news"], lost["resync"]) == (whole["news"], "the cursor is of another log epoch")


def test_stopping_the_process_ends_the_streams_soon(stack, watch):
    with watch() as reader:
        reader.take(1)
        stack.stop()
        assert reader.rest() == []


LARGE = "x" * 1_000_000


@ON_BOTH
def test_pages_of_large_approvals_end_early_and_miss_none(stack, watch):
    session, token = stack.open_session()
    stack.worker.paused = True
    subject = stack.services.directory.subject(token)
    for number in range(7):
        given = {"command": f"make {number}", "stdin": LARGE}
        stack.services.pipeline.submit("workspace_exec", given, subject)
    wait_for(lambda: stack.services.approvals.feeds.place(session.tenant_id).last == 7, "the questions", 60.0)
    with stack.http(stack.key()) as client:
        found, sizes, before = [], [], None
        while page := client.get("/v1/approvals", params={"before": before} if before else {}).json()["approvals"]:
            found += [each["id"] for each in page]
            sizes.append(len(page))
            before = found[-1]
        assert (len(set(found)), sizes) == (7, [5, 2])
        news, after = [], "0-0"
        while True:
            page = client.get("/v1/approvals/events", params={"after": after}).json()
            if not page["news"]:
                break
            assert len(page["news"]) <= 5
            news += [each["number"] for each in page["news"]]
            after = page["next"]
        assert news == list(range(1, 8))
    with watch("0-0") as reader:
        assert [frame["id"] for frame in reader.take(7)] == [f"0-{number}" for number in range(1, 8)]
