"""`codesdk webhooks`: manages endpoints and deliveries over the HTTP API of the daemon."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from codesdk.cli.api_client import ApiClient, connect
from codesdk.cli.console.arguments import parse_duration
from codesdk.cli.console.terminal import Printer, ResponsiveTable, format_time, sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.errors import ExitCode, Fault
from codesdk.webhooks.delivery import Delivery, DeliveryState
from codesdk.webhooks.endpoint import Endpoint, EndpointWithSecret

_PATH = "/v1/webhooks"
TEST_S = 25.0
"""Seconds to wait for the result of a test; the receiver has 15."""


class NotDelivered(Fault):
    """The endpoint did not accept the test message."""

    code = "NOT_DELIVERED"
    exit_code = ExitCode.FAILED


def create(wish: dict[str, Any], *, data_dir: Path | None, as_json: bool) -> None:
    """Create an endpoint."""
    with connect(load_settings(data_dir)) as daemon:
        made = EndpointWithSecret.model_validate(daemon.request("POST", _PATH, json=wish))
    _print_secret(made, as_json=as_json)


def rotate(endpoint: str, overlap: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Rotate an endpoint's signing secret."""
    wish = {"overlap_s": 0.0 if overlap in ("0", "0s") else parse_duration(overlap)}
    with connect(load_settings(data_dir)) as daemon:
        made = EndpointWithSecret.model_validate(daemon.request("POST", f"{_PATH}/{endpoint}/rotate", json=wish))
    _print_secret(made, as_json=as_json)


def change(method: str, endpoint: str, verb: str, done: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Disable, enable or delete an endpoint."""
    body: dict[str, Any] = {"json": {}} if verb == "/disable" else {}
    with connect(load_settings(data_dir)) as daemon:
        found = Endpoint.model_validate(daemon.request(method, f"{_PATH}/{endpoint}{verb}", **body))
    Printer(as_json=as_json).answer(found, f"{done} {found.id}: {sanitize(found.target)}")


def show(*, data_dir: Path | None, as_json: bool) -> None:
    """List endpoints."""
    with connect(load_settings(data_dir)) as daemon:
        found = [Endpoint.model_validate(each) for each in daemon.request("GET", _PATH)["endpoints"]]
    empty = "There is no endpoint. Create one with `codesdk webhooks create`."
    Printer(as_json=as_json).listing("endpoints", found, _endpoint_table, empty)


def test(endpoint: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Send a test message and wait for the result.

    Raises:
        NotDelivered: with the endpoint's answer, or that it sent none.
    """
    with connect(load_settings(data_dir)) as daemon:
        sent = Delivery.model_validate(daemon.request("POST", f"{_PATH}/{endpoint}/test"))
        done = _wait_for_delivery(daemon, sent)
    if done.state is not DeliveryState.DELIVERED:
        last = done.attempts[-1] if done.attempts else None
        why = (
            f"{last.failure}: {sanitize(last.detail)}"
            if last
            else "nothing was sent yet; the endpoint is backing off after a failure"
        )
        raise NotDelivered(f"The test was not delivered: {why}.", details={"delivery": done.id})
    last = done.attempts[-1]
    text = f"Delivered {done.id}: answered {last.status} after {last.duration_ms:.0f} ms."
    Printer(as_json=as_json).answer(done, text)


def deliveries(endpoint: str, state: DeliveryState | None, limit: int, *, data_dir: Path | None, as_json: bool) -> None:
    """List an endpoint's deliveries."""
    wanted = {"limit": limit, **({"state": state.value} if state else {})}
    with connect(load_settings(data_dir)) as daemon:
        answer = daemon.request("GET", f"{_PATH}/{endpoint}/deliveries", params=wanted)
    found = [Delivery.model_validate(each) for each in answer["deliveries"]]
    Printer(as_json=as_json).listing("deliveries", found, _delivery_table, "The endpoint has no deliveries.")


def replay(endpoint: str, delivery: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Send a delivery again."""
    with connect(load_settings(data_dir)) as daemon:
        again = Delivery.model_validate(daemon.request("POST", f"{_PATH}/{endpoint}/deliveries/{delivery}/replay"))
    Printer(as_json=as_json).answer(again, f"Sending {again.id} again.")


def _wait_for_delivery(daemon: ApiClient, sent: Delivery) -> Delivery:
    ends = time.monotonic() + TEST_S
    while True:
        found = Delivery.model_validate(daemon.request("GET", f"{_PATH}/{sent.endpoint_id}/deliveries/{sent.id}"))
        if found.attempts or found.state is not DeliveryState.PENDING or time.monotonic() > ends:
            return found
        time.sleep(0.2)


def _print_secret(made: EndpointWithSecret, *, as_json: bool) -> None:
    printer = Printer(as_json=as_json)
    if as_json:
        printer.emit(made)
        return
    printer.out.print(Text(f"{made.endpoint.id}  {sanitize(made.endpoint.target)}"))
    if made.secret is not None:
        printer.out.print(Text(made.secret))
        printer.progress("The signing secret is shown only once. The receiver verifies messages with it.")


def _health(endpoint: Endpoint) -> str:
    if endpoint.disabled_at is not None:
        return f"disabled: {endpoint.disabled_reason}"
    return f"failed {endpoint.failures} times in a row" if endpoint.failures else "good"


def _endpoint_table(found: Sequence[Endpoint]) -> ResponsiveTable:
    columns = ("endpoint", "kind", "target", "events", "votes as", "state")
    table = ResponsiveTable(*columns, folds=("target", "events"))
    for each in found:
        table.add_row(
            each.id, each.kind.value, each.target, ", ".join(each.types), each.principal_id or "", _health(each)
        )
    return table


def _delivery_table(found: Sequence[Delivery]) -> ResponsiveTable:
    columns = ("delivery", "type", "state", "tries", "last answer", "ms", "next try")
    table = ResponsiveTable(*columns, folds=("last answer",))
    for each in found:
        last = each.attempts[-1] if each.attempts else None
        answer = "" if last is None else str(last.status or last.failure)
        due = format_time(each.due_at, "%Y-%m-%d %H:%M:%SZ") if each.state is DeliveryState.PENDING else ""
        took = "" if last is None else f"{last.duration_ms:.0f}"
        table.add_row(each.id, each.type, each.state.value, str(len(each.attempts)), answer, took, due)
    return table
