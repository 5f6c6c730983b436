"""`codesdk images mcp`: builds the image of a third-party MCP server from its package and adds it to the allowlist."""

from __future__ import annotations

import re
from pathlib import Path

from codesdk.cli.client_config import config_file
from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.sandboxes.images import open_image_store
from codesdk.provision.images import mcp_packages
from codesdk.provision.images.mcp_packages import ServerPackage
from codesdk.sandbox.images.allowlist import add_image

_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,29}[a-z0-9])?")
DOCKERFILE = f"ARG BASE\nFROM ${{BASE}}\nCOPY {mcp_packages.PACKAGES_DIR} {mcp_packages.INSTALL_DIR}\n"


def image_of(name: str) -> str:
    """Return the name of a server's image in its manifest and on the allowlist.

    Raises:
        InputWrong: the server name is invalid.
    """
    if _NAME.fullmatch(name) is None:
        raise InputWrong(f"{name!r} is not a server name.", advice="Use lower-case letters, digits and `-`: time")
    return f"mcp-{name}"


def parse_package(given: str) -> ServerPackage:
    """Parse a package with its version.

    Raises:
        InputWrong: it is not a package, or has no exact version.
    """
    found = mcp_packages.parse_package(given)
    if found is None:
        advice = "Name one version: pypi:mcp-server-time==2026.10.19, or npm:@modelcontextprotocol/server-filesystem@2026.8.31"
        raise InputWrong(f"{given!r} is not a package with an exact version.", advice=advice)
    return found


def make(name: str, package: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Lock and fetch the package next to a Dockerfile in `mcp-<name>`, build and check the image, and allow its id.

    Raises:
        InputWrong: the name or the package is invalid. PackageMissing, PackageNotBuilt: it can't be fetched.
        Fault: the build failed, or the image can't be a sandbox. CannotWrite: the allowlist is unchanged.
    """
    image = image_of(name)
    wanted, printer, settings = parse_package(package), Printer(as_json=as_json), load_settings(data_dir)
    folder = Path(image)
    with open_image_store(settings, printer) as image_store:
        base = image_store.check(image_store.provide(wanted.base, printer.progress))
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputWrong(
                f"{folder} cannot be created: {error.strerror}.", advice="Go to another directory."
            ) from error
        if not (folder / "Dockerfile").exists():  # keep the operator's own Dockerfile
            (folder / "Dockerfile").write_text(DOCKERFILE, encoding="utf-8")
        mcp_packages.fetch(wanted, folder, base.python.version, printer.progress)
        made = image_store.make(folder, tag=image, base=base, progress=printer.progress)
    place = settings.resolved_images_file()
    before = config_file.read(place)
    text = add_image(before, image, made.id)
    if text is not None and text != before:
        config_file.replace(place, before, text, private=False)
    locks = [str(folder / lock) for lock in mcp_packages.LOCKS[wanted.kind]]
    if as_json:
        printer.emit({"image": image, "id": made.id, "listed": text is not None, "locks": locks})
        return
    listed = f"{place} lists it." if text is not None else f"Add to {place}, below `images:`:  {image}: {made.id}"
    for line in (
        f"{image}  {made.id}",
        listed,
        f"Keep {' and '.join(locks)}: they pin the files that are fetched.",
        f"Next: codesdk tools pin {name}",
    ):
        printer.out.print(line, soft_wrap=True, markup=False, highlight=False)
