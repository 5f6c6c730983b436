from __future__ import annotations

import json

import pytest

from codesdk.approvals import Verdict
from codesdk.archive.store import forget_endpoints, remove_session
from codesdk.toolcalls.previews.preview import Preview, PreviewResult, obligations_hash
from codesdk.webhooks import LinkInvalid, LinkWithdrawn
from codesdk.webhooks.delivery import WINDOW_S
from codesdk.webhooks.fanout import ApprovalSnapshot, message_of
from codesdk.webhooks.http_senders import slack
from codesdk.webhooks.message_text import lines, summary_lines
from previewed import preview
from stage import POLICY, bundle, stored_call


def told(post, endpoint):
    return [delivery.type for delivery in post.deliveries(endpoint)]


def decide(post, outcome, verdict=Verdict.APPROVE):
    asked = post.stage.approval_service.find(post.stage.principal.tenant_id, outcome.approval_id)
    post.stage.pipeline.vote(
        asked.tenant_id, asked.id, verdict, digest=asked.digest, by=post.approver(verdict.value).id, comment=None
    )


def test_an_endpoint_is_told_of_what_it_asked_for_and_once(post):
    endpoint = post.endpoint(types=("approval.requested",))
    decide(post, post.ask())
    assert post.feed.step() == 1
    assert post.feed.step() == 0
    assert told(post, endpoint) == ["approval.requested"]


def test_a_group_is_all_of_its_types(post):
    endpoint = post.endpoint(types=("approval.*", "tool.call.denied"))
    decide(post, post.ask(), Verdict.REJECT)
    post.feed.step()
    assert told(post, endpoint) == ["approval.requested", "approval.decided", "tool.call.denied"]


def test_an_approval_that_nobody_answers_is_told_as_expired(post):
    endpoint = post.endpoint(types=("approval.*",))
    post.ask()
    post.stage.sql("UPDATE approvals SET expires_at = created_at - 1")
    post.stage.expire_overdue()
    post.feed.step()
    assert told(post, endpoint) == ["approval.requested", "approval.expired"]


def test_what_happened_before_the_first_endpoint_is_told_to_nobody(post):
    post.ask("before")
    endpoint = post.endpoint()
    post.feed.step()
    assert told(post, endpoint) == []
    post.ask("after")
    post.feed.step()
    assert told(post, endpoint) == ["approval.requested"]


def test_a_session_that_opens_later_is_told_from_its_beginning(post):
    endpoint = post.endpoint()
    post.ask("x", post.stage.open_session())
    post.feed.step()
    assert told(post, endpoint) == ["approval.requested"]


def test_a_disabled_endpoint_is_told_nothing_and_later_nothing_of_then(post):
    endpoint = post.endpoint()
    tenant = endpoint.tenant_id
    post.endpoints.disable(tenant, endpoint.id, "tidying")
    post.ask("then")
    post.feed.step()
    post.endpoints.enable(tenant, endpoint.id)
    post.feed.step()
    assert told(post, endpoint) == []
    post.ask("now")
    post.feed.step()
    assert told(post, endpoint) == ["approval.requested"]


def test_another_tenants_events_are_not_told(post):
    stranger, _ = post.stage.enroll("other", "eve")
    post.endpoint(tenant=stranger.tenant_id)
    post.ask()
    assert post.feed.step() == 0


def test_two_processes_that_read_the_same_log_tell_it_once(post, at_once):
    endpoint = post.endpoint()
    for number in range(5):
        post.ask(str(number))
    feeds = [post.another_feed() for _ in range(4)]
    at_once(lambda number: feeds[number].step(), 4)
    post.feed.step()
    assert told(post, endpoint) == ["approval.requested"] * 5
    assert len({delivery.seq for delivery in post.deliveries(endpoint)}) == 5


def test_a_process_that_dies_while_it_makes_deliveries_leaves_the_cursor_where_it_was(post, monkeypatch):
    endpoint = post.endpoint()
    post.ask()

    def die(*_args, **_kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(post.tickets, "mint", die)
        broken.setattr("codesdk.webhooks.store.add", die)
        with pytest.raises(KeyboardInterrupt):
            post.feed.step()
    assert told(post, endpoint) == []
    assert post.feed.step() == 1


def test_a_question_comes_with_a_ticket_and_is_of_use_until_it_expires(post):
    approver = post.approver()
    endpoint = post.endpoint(principal_id=approver.id)
    outcome = post.ask()
    post.feed.step()
    (delivery,) = post.deliveries(endpoint)
    asked = post.stage.approval_service.find(endpoint.tenant_id, outcome.approval_id)
    ticket = post.tickets.find(delivery.ticket_id)
    assert (ticket.approval_id, ticket.principal_id, ticket.digest) == (asked.id, approver.id, asked.digest)
    assert ticket.expires_at == asked.expires_at
    assert delivery.until <= asked.expires_at


def test_without_a_principal_there_is_nothing_to_answer_with(post):
    endpoint = post.endpoint()
    post.ask()
    post.feed.step()
    assert post.deliveries(endpoint)[0].ticket_id is None


def test_a_question_that_was_answered_meanwhile_comes_without_a_ticket(post):
    endpoint = post.endpoint(principal_id=post.approver().id)
    decide(post, post.ask())
    post.feed.step()
    first, _ = post.deliveries(endpoint)
    assert first.ticket_id is None
    assert first.until == pytest.approx(first.created_at + WINDOW_S)


def test_a_message_shows_what_would_run_and_holds_nothing_that_opens_anything(post):
    post.endpoint(principal_id=post.approver().id)
    post.ask("secret-plan")
    post.feed.step()
    ((stored,),) = post.stage.sql("SELECT message FROM webhook_deliveries")
    data = json.loads(stored)["data"]
    assert data["approval"]["input"] == {"path": "secret-plan", "content": "b"}
    assert data["approval"]["reason"]
    assert "csdk_tkt_" not in stored


def test_what_is_large_is_left_out_and_named(post):
    post.endpoint()
    outcome = post.stage.pipeline.submit("workspace.write", {"path": "a", "content": "x" * 20_000}, post.stage.subject)
    assert outcome
    post.feed.step()
    ((stored,),) = post.stage.sql("SELECT message FROM webhook_deliveries")
    data = json.loads(stored)["data"]
    assert "input" not in data["approval"]
    assert data["omitted"] == ["approval.input"]
    assert len(stored) < 16_000


def test_an_event_that_cannot_be_read_stops_nobody(post):
    endpoint = post.endpoint()
    post.ask("one")
    with post.stage.unreadable(post.stage.subject.session_id, 2):
        for _ in range(6):
            post.feed.step()
    assert told(post, endpoint) == ["approval.requested"]


def test_a_tenant_with_many_sessions_does_not_keep_others_waiting(post, monkeypatch):
    monkeypatch.setattr("codesdk.webhooks.fanout.MAX_SESSIONS_PER_TENANT", 2)
    stranger, _ = post.stage.enroll("other", "eve")
    theirs = post.endpoint(tenant=stranger.tenant_id)
    post.endpoint()
    for number in range(5):
        post.ask(str(number), post.stage.open_session())
    post.ask("x", post.stage.open_session(stranger))
    assert post.feed.step() == 3
    assert told(post, theirs) == ["approval.requested"]


def test_what_was_imported_is_told_to_nobody(post):
    endpoint = post.endpoint()
    post.ask()
    post.stage.sql("UPDATE sessions SET imported_at = 1")
    assert post.feed.step() == 0
    assert told(post, endpoint) == []


def test_a_removed_session_takes_its_deliveries_along(post):
    endpoint = post.endpoint(principal_id=post.approver().id)
    subject = post.stage.open_session()
    post.ask("x", subject)
    post.feed.step()
    post.stage.sessions.close(subject.tenant_id, subject.session_id)
    post.stage.writer.run(lambda unit: remove_session(unit.connection, subject.session_id, 0.0, "test"))
    assert told(post, endpoint) == []


def test_a_restored_copy_tells_nobody(post):
    endpoint = post.endpoint()
    post.ask()
    post.feed.step()
    post.stage.writer.run(lambda unit: forget_endpoints(unit.connection))
    assert post.endpoints.listing(endpoint.tenant_id) == []
    assert post.turns() == 0


def ticket_of(post, endpoint):
    """The token that the one message to it carries."""
    (delivery,) = post.deliveries(endpoint)
    return post.tickets.find(delivery.ticket_id)


def use(post, ticket):
    use = post.tickets.use
    post.stage.writer.run(lambda unit: use(unit, ticket, approval=ticket.approval_id, digest=ticket.digest))


def test_a_disabled_endpoints_tickets_open_nothing_until_it_is_enabled(post):
    endpoint = post.endpoint(principal_id=post.approver().id)
    post.ask()
    post.feed.step()
    ticket = ticket_of(post, endpoint)
    assert ticket.endpoint_id == endpoint.id
    token = post.tickets.token(ticket)
    post.endpoints.disable(endpoint.tenant_id, endpoint.id, "enough")
    with pytest.raises(LinkWithdrawn):
        post.tickets.read(token)
    with pytest.raises(LinkWithdrawn):
        use(post, ticket)
    post.endpoints.enable(endpoint.tenant_id, endpoint.id)
    assert post.tickets.read(token) == ticket
    use(post, ticket)


def test_a_removed_endpoints_tickets_decide_nothing_any_more(post):
    endpoint = post.endpoint(principal_id=post.approver().id)
    other = post.endpoint(principal_id=post.approver("bob").id)
    post.ask()
    post.feed.step()
    gone, left = ticket_of(post, endpoint), ticket_of(post, other)
    post.endpoints.delete(endpoint.tenant_id, endpoint.id)
    with pytest.raises(LinkWithdrawn):
        use(post, gone)
    with pytest.raises(LinkWithdrawn):
        post.tickets.read(post.tickets.token(gone))
    use(post, left)


def test_a_ticket_whose_endpoint_was_changed_in_the_database_opens_nothing(post):
    endpoint = post.endpoint(principal_id=post.approver().id)
    post.ask()
    post.feed.step()
    token = post.tickets.token(ticket_of(post, endpoint))
    post.stage.sql("UPDATE approval_tickets SET endpoint_id = NULL")
    with pytest.raises(LinkInvalid):
        post.tickets.read(token)


def test_a_question_about_what_was_tried_is_one_message_with_what_came_of_it(post, tmp_path):
    stage, endpoint = post.stage, post.endpoint(types=("approval.*",))
    asking = POLICY.replace("approval: {timeout: 10m}", "approval: {timeout: 10m, preview: true}")
    stage.pipeline = stage.pipeline_with(bundle(tmp_path / "previews", asking, stage.registry))
    stage.pipeline.looks = False
    waiting = post.ask()
    stored = stored_call(stage.database, waiting.identity.tool_call_id)
    assert stage.writer.run(lambda unit: stage.deferred.begin_dry_run(unit, stored, "sbx_copy"))
    post.feed.step()
    assert told(post, endpoint) == []
    large = {**preview(), "diff": "+x\n" * 20_000}
    trial = stage.deferred.trial(stored)
    obliged = obligations_hash(trial.tool, trial.obligations)
    stage.deferred.put(waiting.identity.tool_call_id, (), PreviewResult(Preview(obliged=obliged), large))
    assert stage.types()[-3:] == ["approval.preview_started", "approval.previewed", "approval.requested"]
    post.feed.step()
    assert told(post, endpoint) == ["approval.requested"]
    post.turns()
    (outgoing,) = post.sender.messages_sent
    said = lines(outgoing.message)
    assert "Tried in a copy of the workspace: exit code 3, 3 paths changed" in said
    assert all(line.isprintable() for part in said for line in part.splitlines())
    assert outgoing.message.data["omitted"] == ["approval.preview"]
    assert len(json.dumps(outgoing.message.data)) < 16_000
    assert "\n".join(said).count("+x") == 0
    assert len(slack(outgoing)["blocks"][1]["text"]["text"]) < 3000


def test_a_message_says_what_the_call_can_do_what_made_policy_ask_and_how_many_have_approved(post):
    shown = {
        "tool": "workspace.exec",
        "input": {"command": "ls && git push -f"},
        "reason": "Pushes are asked about.",
        "cause": {"command": ["git", "push", "-f"], "words": [0, 1, 2], "spans": [[6, 9], [10, 14], [15, 17]]},
        "effects": [
            {
                "text": "publishes to a remote, rewrites history (-f)",
                "effects": ["publishes"],
                "command": ["git", "push", "-f"],
            }
        ],
        "scripts": [{"path": "a.sh", "text": "x" * 4000}],
    }
    post.ask()
    event = next(event for event in post.stage.events() if event.type == "approval.requested")
    asked = ApprovalSnapshot(
        digest="sha256:0", expires_at=9.0, pending=True, shown=shown, progress="1 of 2 have approved"
    )
    message = message_of(event, "approval.requested", asked)
    data = message.data["approval"]
    assert (data["effects"], data["cause"], data["progress"]) == (
        shown["effects"],
        shown["cause"],
        "1 of 2 have approved",
    )
    assert message.data["omitted"] == ["approval.scripts"]
    said = lines(message)
    for line in (
        "What it can do: publishes to a remote, rewrites history (-f): git push -f",
        "Because of: [git push -f]",
        "Votes: 1 of 2 have approved",
    ):
        assert line in said
    assert any("rewrites history" in line for line in summary_lines(message))
