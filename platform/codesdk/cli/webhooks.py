"""`codesdk webhooks`: over HTTP, with the daemon's key."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.text import Text

from codesdk.cli.daemon import Daemon, connect
from codesdk.cli.given import seconds
from codesdk.cli.listing import Listing
from codesdk.cli.places import settings_of
from codesdk.cli.plain import plain
from codesdk.cli.voice import Voice
from codesdk.errors import ExitCode, Fault
from codesdk.webhooks.delivery import Delivery, DeliveryState
from codesdk.webhooks.endpoint import Endpoint, MadeEndpoint

_PATH = "/v1/webhooks"
TEST_S = 25.0
"""Seconds that a test is waited for: a receiver has 15."""


class NotDelivered(Fault):
    """The endpoint did not take the test."""

    code = "NOT_DELIVERED"
    exit_code = ExitCode.FAILED


def create(wish: dict[str, Any], *, data_dir: Path | None, as_json: bool) -> None:
    """Make one."""
    with connect(settings_of(data_dir)) as daemon:
        made = MadeEndpoint.model_validate(daemon.request("POST", _PATH, json=wish))
    _tell(made, as_json=as_json)


def rotate(endpoint: str, overlap: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Renew its key."""
    wish = {"overlap_s": 0.0 if overlap in ("0", "0s") else seconds(overlap)}
    with connect(settings_of(data_dir)) as daemon:
        made = MadeEndpoint.model_validate(daemon.request("POST", f"{_PATH}/{endpoint}/rotate", json=wish))
    _tell(made, as_json=as_json)


def change(method: str, endpoint: str, verb: str, said: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Stop it, let it go on, or end it."""
    voice = Voice(as_json=as_json)
    body: dict[str, Any] = {"json": {}} if verb == "/disable" else {}
    with connect(settings_of(data_dir)) as daemon:
        found = Endpoint.model_validate(daemon.request(method, f"{_PATH}/{endpoint}{verb}", **body))
    if as_json:
        voice.give(found.model_dump(mode="json"))
    else:
        voice.out.print(Text(f"{said} {found.id}: {plain(found.target)}"))


def show(*, data_dir: Path | None, as_json: bool) -> None:
    """List them."""
    voice = Voice(as_json=as_json)
    with connect(settings_of(data_dir)) as daemon:
        found = [Endpoint.model_validate(each) for each in daemon.request("GET", _PATH)["endpoints"]]
    if as_json:
        voice.give({"endpoints": [each.model_dump(mode="json") for each in found]})
    elif not found:
        voice.out.print("There is no endpoint. `codesdk webhooks create` makes one.")
    else:
        table = _columns("endpoint", "kind", "target", "told of", "answers as", "state")
        for each in found:
            rest = (each.target, ", ".join(each.types), each.principal_id or "", _health(each))
            table.add_row(each.id, each.kind.value, *(Text(plain(text)) for text in rest))
        voice.rows(table)


def test(endpoint: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Send a test and wait for it.

    Raises:
        NotDelivered: with what was answered, or that nothing was.
    """
    voice = Voice(as_json=as_json)
    with connect(settings_of(data_dir)) as daemon:
        sent = Delivery.model_validate(daemon.request("POST", f"{_PATH}/{endpoint}/test"))
        done = _awaited(daemon, sent)
    if done.state is not DeliveryState.DELIVERED:
        last = done.attempts[-1] if done.attempts else None
        why = (
            f"{last.failure}: {plain(last.detail)}"
            if last
            else "nothing was sent yet; the endpoint rests after a failure"
        )
        raise NotDelivered(f"The test was not delivered: {why}.", details={"delivery": done.id})
    if as_json:
        voice.give(done.model_dump(mode="json"))
    else:
        took = done.attempts[-1]
        voice.out.print(f"Delivered {done.id}: answered {took.status} after {took.duration_ms:.0f} ms.")


def deliveries(endpoint: str, state: DeliveryState | None, limit: int, *, data_dir: Path | None, as_json: bool) -> None:
    """The log of what went there."""
    voice = Voice(as_json=as_json)
    wanted = {"limit": limit, **({"state": state.value} if state else {})}
    with connect(settings_of(data_dir)) as daemon:
        answer = daemon.request("GET", f"{_PATH}/{endpoint}/deliveries", params=wanted)
    found = [Delivery.model_validate(each) for each in answer["deliveries"]]
    if as_json:
        voice.give({"deliveries": [each.model_dump(mode="json") for each in found]})
    elif not found:
        voice.out.print("Nothing went there.")
    else:
        table = _columns("delivery", "type", "state", "tries", "last answer", "ms", "next try")
        for each in found:
            last = each.attempts[-1] if each.attempts else None
            said = "" if last is None else str(last.status or last.failure)
            due = _moment(each.due_at) if each.state is DeliveryState.PENDING else ""
            took = "" if last is None else f"{last.duration_ms:.0f}"
            table.add_row(each.id, each.type, each.state.value, str(len(each.attempts)), said, took, due)
        voice.rows(table)


def replay(endpoint: str, delivery: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Send it once more."""
    voice = Voice(as_json=as_json)
    with connect(settings_of(data_dir)) as daemon:
        again = Delivery.model_validate(daemon.request("POST", f"{_PATH}/{endpoint}/deliveries/{delivery}/replay"))
    if as_json:
        voice.give(again.model_dump(mode="json"))
    else:
        voice.out.print(f"{again.id} is sent once more.")


def _awaited(daemon: Daemon, sent: Delivery) -> Delivery:
    ends = time.monotonic() + TEST_S
    while True:
        found = Delivery.model_validate(daemon.request("GET", f"{_PATH}/{sent.endpoint_id}/deliveries/{sent.id}"))
        if found.attempts or found.state is not DeliveryState.PENDING or time.monotonic() > ends:
            return found
        time.sleep(0.2)


def _tell(made: MadeEndpoint, *, as_json: bool) -> None:
    voice = Voice(as_json=as_json)
    if as_json:
        voice.give(made.model_dump(mode="json"))
        return
    voice.out.print(Text(f"{made.endpoint.id}  {plain(made.endpoint.target)}"))
    if made.secret is not None:
        voice.out.print(Text(made.secret))
        voice.say("The signing secret is shown this once. The receiver verifies with it.")


def _health(endpoint: Endpoint) -> str:
    if endpoint.disabled_at is not None:
        return f"disabled: {endpoint.disabled_reason}"
    return f"failed {endpoint.failures} times in a row" if endpoint.failures else "good"


def _columns(*names: str) -> Listing:
    return Listing(*names, folds=("target", "told of", "last answer"))


def _moment(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
