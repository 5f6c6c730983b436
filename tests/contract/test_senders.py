"""The contract of senders, and the specifics of each."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from codesdk.webhooks.delivery import Failure, Message
from codesdk.webhooks.endpoint import InvalidEndpoint
from codesdk.webhooks.fake import FakeSender
from codesdk.webhooks.http_client import WebhookClient
from codesdk.webhooks.http_senders import ChatSender, WebhookSender, new_secret
from codesdk.webhooks.mail_sender import MailSender, MailServer
from codesdk.webhooks.outgoing_message import AnswerLink, DigestItem, OutgoingMessage, SendResult
from receivers import mail_server, public_or_listed, receiving

LOOPBACK = ipaddress.ip_address("127.0.0.1")
HOSTILE = "rm -rf /\x1b[2J<script>alert(1)</script> \u202egpj.exe <!channel> &amp;"
KEY = new_secret()
PARCEL = OutgoingMessage(
    id="msg_00000000000000000000000001",
    target="",
    keys=(KEY,),
    message=Message(
        type="approval.requested",
        timestamp="2026-01-01T00:00:00.000Z",
        data={
            "session_id": "ses_1",
            "approval": {
                "tool": "workspace.exec\r\nBcc: eve@example.com",
                "input": {"command": HOSTILE},
                "reason": "Commands are asked about.",
                "rules": ["exec"],
                "principal": "prn_1",
                "expires_at": 1767225600.0,
            },
            "payload": {},
        },
    ),
    answer=AnswerLink(
        approval_id="apr_1",
        digest="sha256:" + "0" * 64,
        expires_at=1767225600.0,
        url="https://codesdk.test/v1/approvals/apr_1/decision",
        token="csdk_tkt_x",
        page="https://codesdk.test/approve/csdk_tkt_x",
    ),
    at=datetime.now(UTC),
)


MORE = (
    DigestItem(
        message=PARCEL.message,
        answer=PARCEL.answer.model_copy(update={"page": "https://codesdk.test/approve/second"}),
    ),
    DigestItem(
        message=Message(
            type="approval.decided",
            timestamp="2026-01-01T00:00:00.000Z",
            data={"session_id": "ses_1", "payload": {"state": "approved\x1b[2J"}},
        ),
        answer=None,
    ),
)


@dataclass
class Case:
    """A sender, a good target, and what arrived there."""

    sender: Any
    target: str
    arrived: Any
    refuse: Any

    def send(self, **more) -> SendResult:
        return self.sender.send(replace(PARCEL, target=self.target, **more))


def _http(kind):
    policy = public_or_listed([LOOPBACK])
    exchange = WebhookClient(lambda _: [LOOPBACK], policy, ssl.create_default_context(), time.monotonic, deadline_s=2.0)
    return kind(exchange, policy, allow_http=True)


@contextmanager
def _posted(kind):
    with receiving() as receiver:

        def refuse():
            receiver.answer = lambda _: (500, {}, b"no")

        yield Case(_http(kind), receiver.url + "/services/T0/SECRET", receiver.got, refuse)


@contextmanager
def _mailed():
    with mail_server() as box:
        sender = MailSender(
            MailServer("127.0.0.1", box.port, tls=False), "codesdk@example.com", ssl.create_default_context
        )

        def refuse():
            box.refuse = "550 no such user"

        yield Case(sender, "on-call@example.com", box.mails, refuse)


@contextmanager
def _kept():
    sender = FakeSender()

    def refuse():
        sender.answer = lambda _: SendResult(status=500, failure=Failure.STATUS)

    yield Case(sender, "https://receiver.test/", sender.messages_sent, refuse)


CASES = {
    "webhook": lambda: _posted(WebhookSender),
    "chat": lambda: _posted(ChatSender),
    "mail": _mailed,
    "fake": _kept,
}


@pytest.fixture(params=CASES)
def case(request):
    with CASES[request.param]() as built:
        yield built


def test_what_is_sent_arrives_once(case):
    assert case.send().failure is None
    assert len(case.arrived) == 1


def test_a_refusal_is_a_value_with_its_status(case):
    case.refuse()
    sent = case.send()
    assert sent.failure is Failure.STATUS
    assert sent.status >= 500


def test_a_good_target_passes_and_nonsense_does_not(case):
    assert case.sender.check(case.target)
    with pytest.raises(InvalidEndpoint):
        case.sender.check("nonsense")


@pytest.mark.parametrize("kind", ["webhook", "chat", "mail"])
def test_nobody_there_is_a_value(kind):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    if kind == "mail":
        sender = MailSender(MailServer("127.0.0.1", port, tls=False), "a@example.com", ssl.create_default_context)
        target = "b@example.com"
    else:
        sender, target = _http({"webhook": WebhookSender, "chat": ChatSender}[kind]), f"http://127.0.0.1:{port}/"
    assert sender.send(replace(PARCEL, target=target)).failure is Failure.UNREACHABLE


def test_a_webhook_verifies_with_the_official_library_by_either_key():
    old, new = new_secret(), new_secret()
    with _posted(WebhookSender) as case:
        case.send(keys=(new, old), at=datetime.now(UTC))
        (got,) = case.arrived
    for key in (old, new):
        told = Webhook(key).verify(got.body, got.headers)
        assert told["type"] == "approval.requested"
        assert told["data"]["answer"]["token"] == "csdk_tkt_x"
        assert told["data"]["approval"]["input"] == {"command": HOSTILE}
    assert got.headers["webhook-id"] == PARCEL.id
    for wrong in (new_secret(),):
        with pytest.raises(WebhookVerificationError):
            Webhook(wrong).verify(got.body, got.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new).verify(got.body.replace(b"approval", b"approved"), got.headers)


def test_a_chat_message_has_the_link_and_no_markup_of_an_agents():
    with _posted(ChatSender) as case:
        case.send()
        (got,) = case.arrived
        assert "SECRET" not in case.sender.check(case.target)
    told = json.loads(got.body)
    _, section, actions = told["blocks"]
    assert actions["elements"][0]["url"] == PARCEL.answer.page
    assert {block["text"]["type"] for block in told["blocks"][:2]} == {"plain_text"}
    assert "<" not in told["text"]
    assert "\\x1b[2J" in section["text"]["text"]
    assert "\\u202e" in section["text"]["text"]
    assert "webhook-signature" not in got.headers


def test_several_that_waited_together_are_one_message_in_a_chat_with_a_link_for_each():
    with _posted(ChatSender) as case:
        case.send(more=MORE)
        (got,) = case.arrived
    told = json.loads(got.body)
    assert told["text"] == "2 approvals requested, 1 other message"
    header, *sections = told["blocks"]
    assert header["text"]["text"] == told["text"]
    assert [section.get("accessory", {}).get("url") for section in sections] == [
        PARCEL.answer.page,
        "https://codesdk.test/approve/second",
        None,
    ]
    assert {section["text"]["type"] for section in sections} == {"plain_text"}
    assert all("\x1b" not in section["text"]["text"] for section in sections)
    assert "rm -rf" in sections[0]["text"]["text"]
    assert max(len(section["text"]["text"]) for section in sections) < 1000


def test_several_that_waited_together_are_one_mail_with_a_link_for_each():
    with _mailed() as case:
        case.send(more=MORE)
        (mail,) = case.arrived
    assert mail["subject"] == "2 approvals requested, 1 other message"
    text = mail.get_content()
    for link in (PARCEL.answer.page, "https://codesdk.test/approve/second"):
        assert link in text
    assert "Approval decided" in text
    assert "\x1b" not in text


def test_a_mail_has_the_link_and_one_recipient_whatever_an_agent_wrote():
    with _mailed() as case:
        case.send()
        (mail,) = case.arrived
    assert mail["to"] == "on-call@example.com"
    assert mail["bcc"] is None
    assert "\\r\\nBcc" in mail["subject"].replace("\\\\", "\\")
    text = mail.get_content()
    assert PARCEL.answer.page in text
    assert "Commands are asked about." in text
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    "target",
    ["a@example.com\nBcc: eve@example.com", "a@example.com,b@example.com", "<a@example.com>", "a", "@x.example", "a@b"],
)
def test_a_mail_goes_to_one_plain_address(target):
    sender = MailSender(MailServer("127.0.0.1", 1, tls=False), "a@example.com", ssl.create_default_context)
    with pytest.raises(InvalidEndpoint):
        sender.check(target)


def test_without_a_server_there_is_no_mail():
    with pytest.raises(InvalidEndpoint, match="CODESDK_SMTP_URL"):
        MailSender(None, "", ssl.create_default_context).check("a@example.com")
