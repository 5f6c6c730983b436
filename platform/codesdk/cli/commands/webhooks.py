"""The commands of webhooks: options and help."""
# ruff: noqa: PLC0415 - see cli.app

from __future__ import annotations

from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json
from codesdk.webhooks.delivery import DeliveryState
from codesdk.webhooks.endpoint import EndpointKind

webhooks_app = typer.Typer(
    help="Where the tenant of your key is told of approvals, calls and tasks: programs, chats, mail.",
    no_args_is_help=True,
)

Endpoint = Annotated[str, typer.Argument(help="The endpoint's id, whk_….")]


@webhooks_app.command("create")
def create(
    target: Annotated[str, typer.Argument(help="An https:// URL; with --kind mail an address.")],
    *,
    kind: Annotated[EndpointKind, typer.Option("--kind", help="In what form it is told.")] = EndpointKind.WEBHOOK,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="What it is told: approval.requested, task.*, …; may be repeated.  [approval.*]"),
    ] = None,
    principal: Annotated[
        str | None, typer.Option("--principal", help="Id of the approver as whom its links and tokens answer.")
    ] = None,
    description: Annotated[str, typer.Option("--description", help="What it is for.")] = "",
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Make an endpoint and print its signing secret, this once."""
    from codesdk.cli.admin import webhooks

    wish = {"target": target, "kind": kind.value, "principal_id": principal, "description": description}
    webhooks.create({**wish, **({"types": types} if types else {})}, data_dir=data_dir, as_json=json)


@webhooks_app.command("list")
def show(*, data_dir: DataDir = None, json: Json = False) -> None:
    """The endpoints, and how they fare."""
    from codesdk.cli.admin import webhooks

    webhooks.show(data_dir=data_dir, as_json=json)


@webhooks_app.command("delete")
def delete(endpoint: Endpoint, *, data_dir: DataDir = None, json: Json = False) -> None:
    """End an endpoint, with what waits for it and its log."""
    from codesdk.cli.admin import webhooks

    webhooks.change("DELETE", endpoint, "", "Deleted", data_dir=data_dir, as_json=json)


@webhooks_app.command("enable")
def enable(endpoint: Endpoint, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Let an endpoint go on."""
    from codesdk.cli.admin import webhooks

    webhooks.change("POST", endpoint, "/enable", "Enabled", data_dir=data_dir, as_json=json)


@webhooks_app.command("disable")
def disable(endpoint: Endpoint, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Stop an endpoint; what waits for it keeps waiting."""
    from codesdk.cli.admin import webhooks

    webhooks.change("POST", endpoint, "/disable", "Disabled", data_dir=data_dir, as_json=json)


@webhooks_app.command("rotate")
def rotate(
    endpoint: Endpoint,
    *,
    overlap: Annotated[str, typer.Option("--overlap", help="How long the old key signs too: 0s, 12h, 7d.")] = "24h",
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Make a new signing secret and print it, this once."""
    from codesdk.cli.admin import webhooks

    webhooks.rotate(endpoint, overlap, data_dir=data_dir, as_json=json)


@webhooks_app.command("test")
def try_out(endpoint: Endpoint, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Send it a message, and say what came of it."""
    from codesdk.cli.admin import webhooks

    webhooks.test(endpoint, data_dir=data_dir, as_json=json)


@webhooks_app.command("deliveries")
def deliveries(
    endpoint: Endpoint,
    *,
    state: Annotated[DeliveryState | None, typer.Option("--state", help="Only these.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="At most so many.")] = 50,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """What went or is to go there, newest first."""
    from codesdk.cli.admin import webhooks

    webhooks.deliveries(endpoint, state, limit, data_dir=data_dir, as_json=json)


@webhooks_app.command("replay")
def replay(
    endpoint: Endpoint,
    delivery: Annotated[str, typer.Argument(help="The delivery's id, msg_….")],
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Send a message once more, under the same id."""
    from codesdk.cli.admin import webhooks

    webhooks.replay(endpoint, delivery, data_dir=data_dir, as_json=json)
