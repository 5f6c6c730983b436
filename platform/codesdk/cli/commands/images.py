"""`codesdk images …`: options and help."""
# ruff: noqa: PLC0415 - see cli.app

from __future__ import annotations

from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json

images_app = typer.Typer(help="Build and check sandbox images: the shipped ones and your own.", no_args_is_help=True)


@images_app.command("build")
def build_images(
    names: Annotated[
        list[str] | None, typer.Argument(help="Folders in sandbox-images (default: the default profile's)")
    ] = None,
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Build images that are missing or out of date on the engine; takes minutes the first time."""
    from codesdk.cli.sandboxes.images import build

    build(names or [], data_dir=data_dir, as_json=json)


@images_app.command("mcp")
def make_server_image(
    name: Annotated[str, typer.Argument(help="The server's name in its manifest.")],
    package: Annotated[str, typer.Argument(help="pypi:NAME==VERSION or npm:NAME@VERSION.")],
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Build the image of a third-party MCP server: lock and fetch its package, build, check, add to images.yaml."""
    from codesdk.cli.sandboxes.mcp_server_images import make

    make(name, package, data_dir=data_dir, as_json=json)


@images_app.command("list")
def list_images(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List the images that profiles may use and whether the engine has them. --json adds installed packages."""
    from codesdk.cli.sandboxes.images import show

    show(data_dir=data_dir, as_json=json)


@images_app.command("prune")
def prune_images(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it they are only listed.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Remove older builds of our images that no container, session or newer image uses. Never touches other images."""
    from codesdk.cli.sandboxes.images import prune

    prune(yes=yes, data_dir=data_dir, as_json=json)


@images_app.command("check")
def check_image(
    image: Annotated[str, typer.Argument(help="Image name, tag, id or digest.")],
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Check whether an image on the engine can be a sandbox; exit 65 with the reasons if not."""
    from codesdk.cli.sandboxes.images import check

    check(image, data_dir=data_dir, as_json=json)
