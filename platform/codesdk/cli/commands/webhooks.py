"""`codesdk webhooks …`: options and help."""
# ruff: noqa: PLC0415 - see cli.app

from __future__ import annotations

from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json
from codesdk.webhooks.delivery import DeliveryState
from codesdk.webhooks.endpoint import EndpointKind

webhooks_app = typer.Typer(
    help="Notify programs, chats and mail about approvals, calls and tasks of your key's tenant.",
    no_args_is_help=True,
)

Endpoint = Annotated[str, typer.Argument(help="Endpoint id, whk_….")]


@webhooks_app.command("create")
def create(
    target: Annotated[str, typer.Argument(help="An https:// URL; with --kind mail an address.")],
    *,
    kind: Annotated[EndpointKind, typer.Option("--kind", help="Kind of endpoint.")] = EndpointKind.WEBHOOK,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Event types: approval.requested, task.*, …; repeatable.  [approval.*]"),
    ] = None,
    principal: Annotated[
        str | None, typer.Option("--principal", help="Id of the approver that its links and tokens vote as.")
    ] = None,
    description: Annotated[str, typer.Option("--description", help="Description.")] = "",
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Create an endpoint and print its signing secret once."""
    from codesdk.cli.admin import webhooks

    wish = {"target": target, "kind": kind.value, "principal_id": principal, "description": description}
    webhooks.create({**wish, **({"types": types} if types else {})}, data_dir=data_dir, as_json=json)


@webhooks_app.command("list")
def show(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List endpoints and their health."""
    from codesdk.cli.admin import webhooks

    webhooks.show(data_dir=data_dir, as_json=json)


@webhooks_app.command("delete")
def delete(endpoint: Endpoint, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Delete an endpoint with its pending deliveries and log."""
    from codesdk.cli.admin import webhooks

    webhooks.change("DELETE", endpoint, "", "Deleted", data_dir=data_dir, as_json=json)


@webhooks_app.command("enable")
def enable(endpoint: Endpoint, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Enable an endpoint."""
    from codesdk.cli.admin import webhooks

    webhooks.change("POST", endpoint, "/enable", "Enabled", data_dir=data_dir, as_json=json)


@webhooks_app.command("disable")
def disable(endpoint: Endpoint, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Disable an endpoint; its deliveries stay pending."""
    from codesdk.cli.admin import webhooks

    webhooks.change("POST", endpoint, "/disable", "Disabled", data_dir=data_dir, as_json=json)


@webhooks_app.command("rotate")
def rotate(
    endpoint: Endpoint,
    *,
    overlap: Annotated[
        str, typer.Option("--overlap", help="How long the old secret stays valid: 0s, 12h, 7d.")
    ] = "24h",
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Create a new signing secret and print it once."""
    from codesdk.cli.admin import webhooks

    webhooks.rotate(endpoint, overlap, data_dir=data_dir, as_json=json)


@webhooks_app.command("test")
def try_out(endpoint: Endpoint, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Send a test message and print the result."""
    from codesdk.cli.admin import webhooks

    webhooks.test(endpoint, data_dir=data_dir, as_json=json)


@webhooks_app.command("deliveries")
def deliveries(
    endpoint: Endpoint,
    *,
    state: Annotated[DeliveryState | None, typer.Option("--state", help="Only this state.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="Maximum number to list.")] = 50,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """List an endpoint's deliveries, newest first."""
    from codesdk.cli.admin import webhooks

    webhooks.deliveries(endpoint, state, limit, data_dir=data_dir, as_json=json)


@webhooks_app.command("replay")
def replay(
    endpoint: Endpoint,
    delivery: Annotated[str, typer.Argument(help="Delivery id, msg_….")],
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Send a delivery again under the same id."""
    from codesdk.cli.admin import webhooks

    webhooks.replay(endpoint, delivery, data_dir=data_dir, as_json=json)
