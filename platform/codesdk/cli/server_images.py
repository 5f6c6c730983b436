"""`codesdk images mcp`: the image of somebody else's MCP server, from its package to the operator's list."""

from __future__ import annotations

import re
from pathlib import Path

from codesdk.cli.connecting import files
from codesdk.cli.given import InputWrong
from codesdk.cli.images import shelf_of
from codesdk.cli.places import settings_of
from codesdk.cli.voice import Voice
from codesdk.provision import packages
from codesdk.provision.packages import ServerPackage
from codesdk.sandbox.image_allowlist import with_image

_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,29}[a-z0-9])?")
DOCKERFILE = f"ARG BASE\nFROM ${{BASE}}\nCOPY {packages.FETCHED} {packages.PLACE}\n"


def image_of(name: str) -> str:
    """The name of a server's image, in its manifest and on the list.

    Raises:
        InputWrong: a server cannot have this name.
    """
    if _NAME.fullmatch(name) is None:
        raise InputWrong(f"{name!r} is no name of a server.", advice="Write letters, digits and `-`: time")
    return f"mcp-{name}"


def package_named(given: str) -> ServerPackage:
    """The package.

    Raises:
        InputWrong: it is none, or not one version of one.
    """
    found = packages.named(given)
    if found is None:
        advice = "Name one version: pypi:mcp-server-time==2026.10.19, or npm:@modelcontextprotocol/server-filesystem@2026.8.31"
        raise InputWrong(f"{given!r} is no package of one version.", advice=advice)
    return found


def make(name: str, package: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Lock and fetch the package beside a Dockerfile in `mcp-<name>`, build that, check it, and list its id.

    Raises:
        InputWrong: the name or the package cannot be. PackageMissing, PackageNotBuilt: it cannot be fetched.
        Fault: the image cannot be built, or cannot be a sandbox. CannotWrite: the list is as it was.
    """
    image = image_of(name)
    wanted, voice, settings = package_named(package), Voice(as_json=as_json), settings_of(data_dir)
    folder = Path(image)
    with shelf_of(settings, voice) as shelf:
        base = shelf.check(shelf.provide(wanted.base, voice.say))
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputWrong(
                f"{folder} cannot be made: {error.strerror}.", advice="Go to another directory."
            ) from error
        if not (folder / "Dockerfile").exists():  # else it is the operator's
            (folder / "Dockerfile").write_text(DOCKERFILE, encoding="utf-8")
        packages.fetch(wanted, folder, base.python.version, voice.say)
        made = shelf.make(folder, tag=image, base=base, say=voice.say)
    place = settings.resolved_images_file()
    before = files.read(place)
    text = with_image(before, image, made.id)
    if text is not None and text != before:
        files.replace(place, before, text, private=False)
    locks = [str(folder / lock) for lock in packages.LOCKS[wanted.kind]]
    if as_json:
        voice.give({"image": image, "id": made.id, "listed": text is not None, "locks": locks})
        return
    listed = f"{place} lists it." if text is not None else f"Add to {place}, beneath `images:`:  {image}: {made.id}"
    for line in (
        f"{image}  {made.id}",
        listed,
        f"Keep {' and '.join(locks)}: the same files are fetched from them again.",
        f"Next: codesdk tools pin {name}",
    ):
        voice.out.print(line, soft_wrap=True, markup=False, highlight=False)
