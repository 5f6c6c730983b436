from __future__ import annotations

import time

import pytest

from codesdk.tenancy.principal import Role
from codesdk.webhooks.delivery import WINDOW_S, DeliveryState, Failure
from codesdk.webhooks.delivery_sender import (
    BATCH_SIZE,
    DIGEST_ABOVE,
    DIGEST_MAX_TRIES,
    LEASE_S,
    MAX_BACKOFF_S,
    MAX_LEASES_PER_TENANT,
)
from codesdk.webhooks.endpoint import EndpointKind, EndpointLimitReached, EndpointUnknown, InvalidEndpoint
from codesdk.webhooks.outgoing_message import SendResult

REFUSED = SendResult(status=500, failure=Failure.STATUS, detail="it answered 500")


def test_what_is_due_is_sent_and_recorded(post):
    endpoint = post.endpoint()
    post.ask()
    post.feed.step()
    assert post.turns() == 1
    (delivery,) = post.deliveries(endpoint)
    assert delivery.state is DeliveryState.DELIVERED
    (attempt,) = delivery.attempts
    assert (attempt.status, attempt.failure) == (200, None)
    assert post.sender.messages_sent[0].id == delivery.id
    assert post.delivery_sender.send_next("one") is None


def test_a_question_says_how_it_is_answered(post):
    post.endpoint(principal_id=post.approver().id)
    outcome = post.ask()
    post.feed.step()
    post.turns()
    answer = post.sender.messages_sent[0].answer
    assert answer.url == f"https://codesdk.test/v1/approvals/{outcome.approval_id}/decision"
    assert post.tickets.read(answer.token).approval_id == outcome.approval_id
    assert answer.page == f"https://codesdk.test/approve/{answer.token}"


def test_a_receiver_that_answers_500_for_a_day_is_tried_about_ten_times_and_then_given_up(post):
    endpoint = post.endpoint(types=("tool.call.denied",))
    post.stage.pipeline.submit("patch.apply", {"patch": "x"}, post.stage.subject)
    post.feed.step()
    post.sender.answer = lambda _: REFUSED
    began = post.stage.clock.monotonic()
    for _ in range(3000):
        post.turns()
        if post.deliveries(endpoint)[0].state is DeliveryState.DEAD:
            break
        post.stage.clock.advance(30.0)
    (delivery,) = post.deliveries(endpoint)
    assert delivery.state is DeliveryState.DEAD
    assert 9 <= len(delivery.attempts) <= 13
    assert post.stage.clock.monotonic() - began == pytest.approx(WINDOW_S, rel=0.01)
    pauses = [later.at - earlier.at for earlier, later in zip(delivery.attempts, delivery.attempts[1:], strict=False)]
    assert pauses[:6] == sorted(pauses[:6])
    assert len({outgoing.id for outgoing in post.sender.messages_sent}) == 1


def test_what_was_given_up_is_replayed_under_its_id(post):
    endpoint = post.endpoint()
    post.ask()
    post.feed.step()
    post.sender.answer = lambda _: REFUSED
    post.turns()
    post.stage.clock.advance(WINDOW_S + 1)
    post.turns()
    (dead,) = post.deliveries(endpoint)
    assert dead.state is DeliveryState.DEAD
    post.sender.answer = lambda _: SendResult(status=204)
    post.endpoints.replay(endpoint.tenant_id, endpoint.id, dead.id)
    post.stage.clock.advance(MAX_BACKOFF_S * 2)
    post.turns()
    (done,) = post.deliveries(endpoint)
    assert (done.id, done.state) == (dead.id, DeliveryState.DELIVERED)
    assert [attempt.status for attempt in done.attempts] == [500, 204]
    post.endpoints.replay(endpoint.tenant_id, endpoint.id, dead.id)
    post.turns()
    assert post.deliveries(endpoint)[0].attempts[-1].status == 204
    assert len(post.sender.messages_sent) == 3


def test_a_replay_that_is_asked_for_while_it_is_being_sent_is_sent_too(post):
    endpoint = post.endpoint()
    post.ask()
    post.feed.step()
    (waiting,) = post.deliveries(endpoint)

    def replay(_parcel):
        post.sender.answer = lambda _: SendResult(status=204)
        post.endpoints.replay(endpoint.tenant_id, endpoint.id, waiting.id)
        return SendResult(status=200)

    post.sender.answer = replay
    assert post.delivery_sender.send_next("one") == 1
    (again,) = post.deliveries(endpoint)
    assert (again.state, again.replays, again.tries) == (DeliveryState.PENDING, 1, 0)
    assert post.turns() == 1
    (done,) = post.deliveries(endpoint)
    assert (done.state, [attempt.status for attempt in done.attempts]) == (DeliveryState.DELIVERED, [200, 204])


def test_what_waits_for_a_suspended_tenant_is_held_and_goes_out_afterwards_unless_it_is_too_old(post):
    endpoint = post.endpoint(types=("approval.*",))
    other = post.endpoint(tenant=post.stage.enroll("other", "eve")[0].tenant_id)
    post.ask("old")
    post.feed.step()
    post.endpoints.test(other.tenant_id, other.id)
    suspend(post, "1.0")
    assert post.turns() == 1
    assert [outgoing.message.type for outgoing in post.sender.messages_sent] == ["webhook.test"]
    assert [each.state for each in post.deliveries(endpoint)] == [DeliveryState.PENDING]
    post.stage.sql("UPDATE webhook_deliveries SET until = 1 WHERE endpoint_id = :endpoint", endpoint=endpoint.id)
    post.endpoints.test(endpoint.tenant_id, endpoint.id)
    suspend(post, "NULL")
    assert post.turns() == 1
    assert [each.state for each in post.deliveries(endpoint)] == [DeliveryState.DEAD, DeliveryState.DELIVERED]


def test_a_tenant_that_is_suspended_during_a_turn_is_sent_nothing_more(post):
    post.endpoint()
    post.ask("one")
    post.ask("two")
    post.feed.step()

    def suspended(_parcel):
        suspend(post, "1.0")
        return SendResult(status=200)

    post.sender.answer = suspended
    assert post.turns() == 1


def suspend(post, moment):
    own = post.stage.principal.tenant_id
    post.stage.sql(f"UPDATE tenants SET suspended_at = {moment} WHERE id = :own", own=own)


def test_a_question_that_expired_unsent_is_not_sent(post):
    endpoint = post.endpoint()
    post.ask()
    post.feed.step()
    post.stage.sql("UPDATE webhook_deliveries SET until = 1")
    post.turns()
    assert post.deliveries(endpoint)[0].state is DeliveryState.DEAD
    assert post.sender.messages_sent == []


def test_a_sender_killed_between_sending_and_recording_sends_again_under_the_same_id(post):
    endpoint = post.endpoint()
    post.ask()
    post.feed.step()

    def die(_parcel):
        raise SystemExit

    post.sender.answer = die
    # As kill -9 leaves it: nothing is recorded and the lease is not released.
    release, post.delivery_sender._writer = post.delivery_sender._writer, _Dying(post.delivery_sender._writer)
    with pytest.raises(SystemExit):
        post.delivery_sender.send_next("killed")
    post.delivery_sender._writer = release
    post.sender.answer = lambda _: SendResult(status=200)
    assert post.delivery_sender.send_next("other") is None  # the lease is the dead one's still
    post.stage.clock.advance(LEASE_S + 1)
    assert post.turns("other") == 1
    assert [outgoing.id for outgoing in post.sender.messages_sent] == [post.deliveries(endpoint)[0].id] * 2
    assert len(post.deliveries(endpoint)[0].attempts) == 1


class _Dying:
    """The writer of a process that gets no further than its lease."""

    def __init__(self, writer):
        self._writer = writer
        self._left = 2

    def run(self, work):
        self._left -= 1
        if self._left < 0:
            raise SystemExit
        return self._writer.run(work)


def test_two_processes_never_send_to_one_endpoint_at_once(post, at_once):
    endpoint = post.endpoint()
    for number in range(10):
        post.ask(str(number))
    post.feed.step()
    assert sum(at_once(lambda number: post.turns(f"holder {number}"), 4)) == 10
    assert len({outgoing.id for outgoing in post.sender.messages_sent}) == len(post.sender.messages_sent) == 10
    assert all(len(delivery.attempts) == 1 for delivery in post.deliveries(endpoint))


def test_messages_of_one_endpoint_go_in_the_order_in_which_they_happened(post):
    endpoint = post.endpoint()
    for number in range(6):
        post.ask(str(number))
    post.feed.step()
    post.turns()
    assert [outgoing.id for outgoing in post.sender.messages_sent] == [
        delivery.id for delivery in post.deliveries(endpoint)
    ]


def test_a_dead_receiver_rests_longer_each_time_and_all_its_messages_with_it(post):
    post.endpoint()
    for number in range(5):
        post.ask(str(number))
    post.feed.step()
    post.sender.answer = lambda _: SendResult(failure=Failure.UNREACHABLE)
    assert post.turns() == 1
    for _ in range(600):
        post.stage.clock.advance(1.0)
        post.turns()
    assert len(post.sender.messages_sent) < 12


def test_ten_thousand_waiting_messages_of_one_tenant_keep_no_other_waiting(post):
    stage = post.stage
    stranger, _ = stage.enroll("other", "eve", Role.DEVELOPER)
    ours, theirs = post.endpoint(), post.endpoint(tenant=stranger.tenant_id, target="https://other.test/")
    post.ask()
    post.feed.step()
    stage.sql(
        "INSERT INTO webhook_deliveries (id, endpoint_id, tenant_id, type, session_id, seq, message, state, created_at,"
        " due_at, until, tries, attempts) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
        " SELECT 'msg_' || i, endpoint_id, tenant_id, type, session_id, 1000 + i, message, state, created_at, due_at,"
        " until, tries, attempts FROM webhook_deliveries, n"
    )
    post.ask("x", stage.open_session(stranger))
    post.feed.step()
    began = time.perf_counter()
    assert [post.delivery_sender.send_next("one"), post.delivery_sender.send_next("two")] == [20, 1]
    assert time.perf_counter() - began < 30
    assert [outgoing.target for outgoing in post.sender.messages_sent] == ["https://receiver.test/"] * 20 + [
        "https://other.test/"
    ]
    assert post.deliveries(theirs)[0].state is DeliveryState.DELIVERED
    assert ours.id != theirs.id


def test_a_tenant_with_many_endpoints_has_only_some_of_the_threads(post, monkeypatch):
    for _ in range(MAX_LEASES_PER_TENANT + 1):
        post.endpoint()
    post.ask()
    post.feed.step()
    inside = []

    def look(_parcel):
        if len(inside) < MAX_LEASES_PER_TENANT + 1:
            inside.append(None)
            inside[-1] = post.delivery_sender.send_next(f"holder {len(inside)}")
        return SendResult(status=200)

    post.sender.answer = look
    post.delivery_sender.send_next("first")
    assert None in inside  # with two under way, the third had to wait
    assert post.turns() >= 0
    assert len(post.sender.messages_sent) == MAX_LEASES_PER_TENANT + 1


def test_410_ends_an_endpoint_and_an_operator_lets_it_go_on(post):
    endpoint = post.endpoint()
    post.ask()
    post.feed.step()
    post.sender.answer = lambda _: SendResult(status=410, failure=Failure.STATUS, gone=True)
    post.turns()
    gone = post.endpoints.find(endpoint.tenant_id, endpoint.id)
    assert gone.disabled_reason == "it answered 410 Gone"
    assert post.deliveries(endpoint)[0].state is DeliveryState.DEAD
    assert post.endpoints.enable(endpoint.tenant_id, endpoint.id).disabled_at is None


def test_an_endpoint_that_is_removed_during_its_turn_is_no_error(post):
    endpoint = post.endpoint()
    post.ask()
    post.feed.step()

    def remove(_parcel):
        post.endpoints.delete(endpoint.tenant_id, endpoint.id)
        return SendResult(status=200)

    post.sender.answer = remove
    assert post.delivery_sender.send_next("one") == 1
    with pytest.raises(EndpointUnknown):
        post.endpoints.find(endpoint.tenant_id, endpoint.id)


def test_keys_overlap_while_they_are_rotated(post):
    made = post.endpoints.create(post.stage.principal.tenant_id, _wish())
    renewed = post.endpoints.rotate(made.endpoint.tenant_id, made.endpoint.id, 3600.0)
    assert _keys(post) == (renewed.secret, made.secret)
    post.stage.clock.advance(3601)
    assert _keys(post) == (renewed.secret,)


def test_a_key_that_others_know_is_replaced_at_once(post):
    made = post.endpoints.create(post.stage.principal.tenant_id, _wish())
    renewed = post.endpoints.rotate(made.endpoint.tenant_id, made.endpoint.id, 0.0)
    assert _keys(post) == (renewed.secret,)


def _wish(**more):
    from codesdk.webhooks.endpoint import NewEndpoint  # noqa: PLC0415

    return NewEndpoint(target="https://receiver.test/", **more)


def _keys(post):
    (endpoint,) = post.endpoints.listing(post.stage.principal.tenant_id)
    post.endpoints.test(endpoint.tenant_id, endpoint.id)
    post.turns()
    return post.sender.messages_sent[-1].keys


def test_secrets_and_targets_stand_nowhere_in_the_database(post):
    made = post.endpoints.create(post.stage.principal.tenant_id, _wish())
    ((target, secrets),) = post.stage.sql("SELECT target, secrets FROM webhook_endpoints")
    assert "receiver.test" not in target
    assert made.secret.removeprefix("whsec_") not in secrets


def test_what_cannot_be_opened_any_more_is_an_attempt_that_says_so(post):
    endpoint = post.endpoint()
    post.stage.sql("UPDATE webhook_endpoints SET target = 's1.AAAA'")
    post.endpoints.test(endpoint.tenant_id, endpoint.id)
    post.turns()
    (attempt,) = post.deliveries(endpoint)[0].attempts
    assert attempt.failure is Failure.UNSENDABLE


def test_only_who_may_approve_can_be_answered_for(post):
    developer, _ = post.stage.enroll("default", "bob", Role.DEVELOPER)
    stranger, _ = post.stage.enroll("other", "eve", Role.APPROVER)
    for principal in (developer.id, stranger.id, "prn_nobody"):
        with pytest.raises(InvalidEndpoint, match="is not an approver of this tenant"):
            post.endpoint(principal_id=principal)


def test_a_tenant_has_only_so_many_endpoints(post, monkeypatch):
    monkeypatch.setattr("codesdk.webhooks.endpoint_service.MAX_ENDPOINTS", 2)
    post.endpoint()
    post.endpoint()
    with pytest.raises(EndpointLimitReached):
        post.endpoint()


def test_old_deliveries_that_are_over_are_forgotten(post):
    endpoint = post.endpoint()
    post.endpoints.test(endpoint.tenant_id, endpoint.id)
    post.turns()
    post.ask()
    post.feed.step()
    post.stage.clock.advance(31 * 24 * 3600)
    assert post.endpoints.forget(30) == 1
    assert [delivery.type for delivery in post.deliveries(endpoint)] == ["approval.requested"]


def test_a_success_ends_the_count_of_failures_also_within_one_turn(post):
    endpoint = post.endpoint()
    for path in ("a", "b", "c"):
        post.ask(path)
    post.feed.step()
    post.sender.answer = lambda _: REFUSED
    for _ in range(3):
        post.turns()
        post.stage.clock.advance(MAX_BACKOFF_S * 2)
    assert post.endpoints.find(endpoint.tenant_id, endpoint.id).failures == 3
    answers = iter([SendResult(status=200), REFUSED])
    post.sender.answer = lambda _: next(answers)
    assert post.delivery_sender.send_next("one") == 2
    assert post.endpoints.find(endpoint.tenant_id, endpoint.id).failures == 1


# -- what people get --------------------------------------------------------------------------------------------------


def asked(post, number, **wish):
    """That many questions, and where they go."""
    endpoint = post.endpoint(principal_id=post.approver().id, types=("approval.requested",), **wish)
    for index in range(number):
        post.ask(str(index))
    post.feed.step()
    return endpoint


@pytest.mark.parametrize(
    ("number", "messages"), [(DIGEST_ABOVE, DIGEST_ABOVE), (DIGEST_ABOVE + 1, 1), (BATCH_SIZE + DIGEST_ABOVE + 1, 2)]
)
def test_many_questions_are_few_messages_in_a_chat_and_each_has_its_link(post, number, messages):
    endpoint = asked(post, number, kind=EndpointKind.CHAT)
    assert post.turns() == number
    assert len(post.sender.messages_sent) == messages
    pages = [item.answer.page for outgoing in post.sender.messages_sent for item in outgoing.items]
    assert len(set(pages)) == number
    done = post.deliveries(endpoint)
    assert {each.state for each in done} == {DeliveryState.DELIVERED}
    assert {len(each.attempts) for each in done} == {1}


def test_a_program_gets_each_message_by_itself(post):
    asked(post, DIGEST_ABOVE + 1)
    post.turns()
    assert [len(outgoing.items) for outgoing in post.sender.messages_sent] == [1] * (DIGEST_ABOVE + 1)


def test_a_digest_that_was_not_taken_is_tried_again_whole_and_without_what_nobody_needs_any_more(post):
    endpoint = asked(post, DIGEST_ABOVE + 2, kind=EndpointKind.MAIL, target="a@example.com")
    post.sender.answer = lambda _: REFUSED
    assert post.turns() == DIGEST_ABOVE + 2
    assert {each.state for each in post.deliveries(endpoint)} == {DeliveryState.PENDING}
    first = post.deliveries(endpoint)[0]
    post.stage.sql("UPDATE webhook_deliveries SET until = 1 WHERE id = :id", id=first.id)
    post.sender.answer = lambda _: SendResult(status=250)
    post.stage.clock.advance(60)
    assert post.turns() == DIGEST_ABOVE + 1
    assert [len(outgoing.items) for outgoing in post.sender.messages_sent] == [DIGEST_ABOVE + 2, DIGEST_ABOVE + 1]
    assert (
        len({outgoing.id for outgoing in post.sender.messages_sent}) == 2
    )  # a mailbox drops what comes twice under one id
    states = [each.state for each in post.deliveries(endpoint)]
    assert states == [DeliveryState.DEAD] + [DeliveryState.DELIVERED] * (DIGEST_ABOVE + 1)


def test_a_message_that_its_receiver_never_takes_holds_up_none_of_those_that_went_with_it(post):
    endpoint = asked(post, DIGEST_ABOVE + 2, kind=EndpointKind.CHAT)
    seen = []

    def answer(outgoing):
        seen.extend(item.answer.approval_id for item in outgoing.items)
        bad = any(item.answer.approval_id == seen[0] for item in outgoing.items)
        return REFUSED if bad else SendResult(status=200)

    post.sender.answer = answer
    for _ in range(DIGEST_MAX_TRIES + DIGEST_ABOVE + 2):
        post.turns()
        post.stage.clock.advance(30)
    states = [each.state for each in post.deliveries(endpoint)]
    assert states.count(DeliveryState.DELIVERED) == DIGEST_ABOVE + 1
    assert (
        seen[: DIGEST_MAX_TRIES * (DIGEST_ABOVE + 2)] == seen[: DIGEST_ABOVE + 2] * DIGEST_MAX_TRIES
    )  # tried together before
