"""Signed webhooks, and chats by their incoming webhooks."""

from __future__ import annotations

import json
from typing import Any

from codesdk.domain.addresses import AddressPolicy
from codesdk.webhooks import signing
from codesdk.webhooks.delivery import Failure
from codesdk.webhooks.destination import destination_of
from codesdk.webhooks.exchange import Exchange, Unanswered
from codesdk.webhooks.parcel import Answer, Item, Parcel, Sent
from codesdk.webhooks.words import brief, lines, title_of

_GONE = 410
_BLOCK = 2800
"""Characters of a section's text; Slack takes 3000."""


class WebhookSender:
    """Standard Webhooks over HTTPS."""

    def __init__(self, exchange: Exchange, policy: AddressPolicy, *, allow_http: bool) -> None:
        self._exchange = exchange
        self._policy = policy
        self._allow_http = allow_http

    def check(self, target: str) -> str:
        """The whole URL, without its query."""
        destination = destination_of(target, self._policy, allow_http=self._allow_http)
        return (destination.origin + destination.path.partition("?")[0])[:300]

    def send(self, parcel: Parcel) -> Sent:
        """POST it, signed with each key."""
        body = json.dumps(body_of(parcel), ensure_ascii=False, separators=(",", ":"))
        signed = signing.headers(parcel.id, body, parcel.at, parcel.keys)
        return self._post(parcel.target, body, {"content-type": "application/json", **signed})

    def _post(self, target: str, body: str, headers: dict[str, str]) -> Sent:
        destination = destination_of(target, self._policy, allow_http=self._allow_http)
        try:
            answered = self._exchange.post(destination, body.encode(), {"user-agent": "CodeSDK-Webhooks", **headers})
        except Unanswered as nothing:
            return Sent(failure=nothing.failure, detail=nothing.detail)
        status = answered.status
        if 200 <= status < 300:  # noqa: PLR2004 (HTTP)
            return Sent(status=status)
        moved = 300 <= status < 400  # noqa: PLR2004 (HTTP)
        return Sent(
            status=status,
            failure=Failure.REDIRECT if moved else Failure.STATUS,
            detail="it answered with a redirect, which is not followed" if moved else f"it answered {status}",
            retry_after_s=answered.retry_after_s,
            gone=status == _GONE,
        )


def body_of(parcel: Parcel) -> dict[str, Any]:
    """The message as a program gets it."""
    message = parcel.message
    data = dict(message.data)
    if parcel.answer is not None:
        data["answer"] = parcel.answer.model_dump(mode="json")
    return {"type": message.type, "timestamp": message.timestamp, "data": data}


class ChatSender(WebhookSender):
    """Slack's incoming webhooks, and chats that take their format."""

    def check(self, target: str) -> str:
        """Where it leads: the path of such a URL is its password."""
        return f"{destination_of(target, self._policy, allow_http=self._allow_http).origin}/…"[:300]

    def send(self, parcel: Parcel) -> Sent:
        """POST it; the URL itself is the credential."""
        return self._post(parcel.target, json.dumps(slack(parcel)), {"content-type": "application/json; charset=utf-8"})


def slack(parcel: Parcel) -> dict[str, Any]:
    """Blocks of plain text: nothing that an agent wrote is read as markup, mention or link."""
    title = title_of([item.message for item in parcel.items])
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain(title[:150])}]
    if parcel.more:
        blocks += [_line(item) for item in parcel.items]
        return {"text": _escaped(title), "blocks": blocks}
    blocks.append({"type": "section", "text": _plain(_cut("\n".join(lines(parcel.message))))})
    if parcel.answer is not None:
        blocks.append({"type": "actions", "elements": [_button(parcel.answer)]})
    return {"text": _escaped(title), "blocks": blocks}


def _line(item: Item) -> dict[str, Any]:
    """One of several, with its button beside it."""
    section = {"type": "section", "text": _plain("\n".join(brief(item.message)))}
    return section if item.answer is None else {**section, "accessory": _button(item.answer)}


def _button(answer: Answer) -> dict[str, Any]:
    return {"type": "button", "text": _plain("Look and decide"), "url": answer.page}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text or "-", "emoji": False}


def _cut(text: str) -> str:
    return text if len(text) <= _BLOCK else f"{text[:_BLOCK]}\n[cut; the page shows all of it]"


def _escaped(text: str) -> str:
    # The text of a notification is read as Slack's own markup.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
