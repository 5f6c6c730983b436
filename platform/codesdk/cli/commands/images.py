"""The commands of images: options and help."""
# ruff: noqa: PLC0415 - see cli.app

from __future__ import annotations

from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json

images_app = typer.Typer(help="What sandboxes are made of: ours, and the operator's own.", no_args_is_help=True)


@images_app.command("build")
def build_images(
    names: Annotated[
        list[str] | None, typer.Argument(help="Folders of sandbox-images (default: the default profile's)")
    ] = None,
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Build those that are not on the engine as their folders describe them; minutes the first time."""
    from codesdk.cli.sandboxes.images import build

    build(names or [], data_dir=data_dir, as_json=json)


@images_app.command("mcp")
def make_server_image(
    name: Annotated[str, typer.Argument(help="The server's name, as in its manifest.")],
    package: Annotated[str, typer.Argument(help="pypi:NAME==VERSION or npm:NAME@VERSION.")],
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Make the image of an MCP server that others wrote: lock and fetch its package, build, check, list in images.yaml."""
    from codesdk.cli.sandboxes.mcp_server_images import make

    make(name, package, data_dir=data_dir, as_json=json)


@images_app.command("list")
def list_images(*, data_dir: DataDir = None, json: Json = False) -> None:
    """All that profiles may name, and whether the engine has them. --json adds every package of ours."""
    from codesdk.cli.sandboxes.images import show

    show(data_dir=data_dir, as_json=json)


@images_app.command("prune")
def prune_images(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it they are only listed.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Remove older builds of our images that no container, session or newer image uses. Never anybody else's."""
    from codesdk.cli.sandboxes.images import prune

    prune(yes=yes, data_dir=data_dir, as_json=json)


@images_app.command("check")
def check_image(
    image: Annotated[str, typer.Argument(help="A name, tag, id or digest.")],
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Say whether an image that is on the engine can be a sandbox, and why not; exit 65 where it cannot."""
    from codesdk.cli.sandboxes.images import check

    check(image, data_dir=data_dir, as_json=json)
