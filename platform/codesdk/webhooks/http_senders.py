"""HTTP senders: signed webhooks (Standard Webhooks 1.0, `v1`, HMAC-SHA256) and incoming webhooks of chats."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from standardwebhooks.webhooks import Webhook

from codesdk.domain.network.addresses import AddressPolicy
from codesdk.webhooks.delivery import Failure
from codesdk.webhooks.destination import destination_of
from codesdk.webhooks.http_client import RequestFailed, WebhookClient
from codesdk.webhooks.message_text import lines, summary_lines, title_of
from codesdk.webhooks.outgoing_message import AnswerLink, DigestItem, OutgoingMessage, SendResult

_GONE = 410
_BLOCK = 2800
"""Characters of a section's text; Slack's limit is 3000."""
SECRET_PREFIX = "whsec_"  # noqa: S105 (a prefix, no secret)
SECRET_BYTES = 32
"""Bytes of a secret; the specification asks for 24 to 64."""


def new_secret() -> str:
    """A new signing secret, in the format of the Standard Webhooks libraries."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature_headers(message_id: str, body: str, at: datetime, keys: Sequence[str]) -> dict[str, str]:
    """The `webhook-*` headers, with one signature for each key, newest first."""
    signatures = [Webhook(key).sign(message_id, at, body) for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


class WebhookSender:
    """Standard Webhooks over HTTPS."""

    def __init__(self, exchange: WebhookClient, policy: AddressPolicy, *, allow_http: bool) -> None:
        self._exchange = exchange
        self._policy = policy
        self._allow_http = allow_http

    def check(self, target: str) -> str:
        """The URL without its query."""
        destination = destination_of(target, self._policy, allow_http=self._allow_http)
        return (destination.origin + destination.path.partition("?")[0])[:300]

    def send(self, outgoing: OutgoingMessage) -> SendResult:
        """POST the message, signed with each key."""
        body = json.dumps(body_of(outgoing), ensure_ascii=False, separators=(",", ":"))
        signed = signature_headers(outgoing.id, body, outgoing.at, outgoing.keys)
        return self._post(outgoing.target, body, {"content-type": "application/json", **signed})

    def _post(self, target: str, body: str, headers: dict[str, str]) -> SendResult:
        destination = destination_of(target, self._policy, allow_http=self._allow_http)
        try:
            answered = self._exchange.post(destination, body.encode(), {"user-agent": "CodeSDK-Webhooks", **headers})
        except RequestFailed as nothing:
            return SendResult(failure=nothing.failure, detail=nothing.detail)
        status = answered.status
        if 200 <= status < 300:  # noqa: PLR2004 (HTTP)
            return SendResult(status=status)
        moved = 300 <= status < 400  # noqa: PLR2004 (HTTP)
        return SendResult(
            status=status,
            failure=Failure.REDIRECT if moved else Failure.STATUS,
            detail="it answered with a redirect, which is not followed" if moved else f"it answered {status}",
            retry_after_s=answered.retry_after_s,
            gone=status == _GONE,
        )


def body_of(outgoing: OutgoingMessage) -> dict[str, Any]:
    """The JSON body of a webhook."""
    message = outgoing.message
    data = dict(message.data)
    if outgoing.answer is not None:
        data["answer"] = outgoing.answer.model_dump(mode="json")
    return {"type": message.type, "timestamp": message.timestamp, "data": data}


class ChatSender(WebhookSender):
    """Incoming webhooks of Slack, and of chats that accept its format."""

    def check(self, target: str) -> str:
        """The origin only: the path of an incoming webhook is its credential."""
        return f"{destination_of(target, self._policy, allow_http=self._allow_http).origin}/…"[:300]

    def send(self, outgoing: OutgoingMessage) -> SendResult:
        """POST the message; the URL itself is the credential."""
        return self._post(
            outgoing.target, json.dumps(slack(outgoing)), {"content-type": "application/json; charset=utf-8"}
        )


def slack(outgoing: OutgoingMessage) -> dict[str, Any]:
    """The message as plain-text blocks, so that nothing an agent wrote becomes markup, a mention or a link."""
    title = title_of([item.message for item in outgoing.items])
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain(title[:150])}]
    if outgoing.more:
        blocks += [_line(item) for item in outgoing.items]
        return {"text": _escape(title), "blocks": blocks}
    blocks.append({"type": "section", "text": _plain(_truncate("\n".join(lines(outgoing.message))))})
    if outgoing.answer is not None:
        blocks.append({"type": "actions", "elements": [_button(outgoing.answer)]})
    return {"text": _escape(title), "blocks": blocks}


def _line(item: DigestItem) -> dict[str, Any]:
    """One item of a digest, with its button."""
    section = {"type": "section", "text": _plain("\n".join(summary_lines(item.message)))}
    return section if item.answer is None else {**section, "accessory": _button(item.answer)}


def _button(answer: AnswerLink) -> dict[str, Any]:
    return {"type": "button", "text": _plain("Review and decide"), "url": answer.page}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text or "-", "emoji": False}


def _truncate(text: str) -> str:
    return text if len(text) <= _BLOCK else f"{text[:_BLOCK]}\n[cut; the page shows all of it]"


def _escape(text: str) -> str:
    # Slack parses this field as markup.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
