"""`codesdk images`: build, list, check, prune."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from codesdk.cli.console.terminal import Printer, ResponsiveTable
from codesdk.cli.effective_settings import load_settings
from codesdk.errors import Fault
from codesdk.provision.engines import docker_engine
from codesdk.provision.images.sandbox_images import ImageStore, ImageUnknown
from codesdk.sandbox.profiles.loader import DEFAULT, load_profiles
from codesdk.sandbox.records.store import images_in_use
from codesdk.settings import Settings
from codesdk.storage.database import Database


def build(names: list[str], *, data_dir: Path | None, as_json: bool) -> None:
    """Build missing images; without names, the default profile's image.

    Raises:
        ImageUnknown: a name is not one of our image folders. Fault: a build failed.
    """
    printer = Printer(as_json=as_json)
    settings = load_settings(data_dir)
    wanted = names or [load_profiles(settings.profiles_dir).named(DEFAULT).image]
    with open_image_store(settings, printer) as image_store:
        for name in wanted:
            if name not in image_store.built:
                raise ImageUnknown(name, image_store.built, settings.resolved_images_file())
        built = {name: image_store.provide(name, printer.progress) for name in wanted}
    if as_json:
        printer.emit({"images": built})
        return
    for name, image in built.items():
        printer.out.print(f"{name}  {image}", soft_wrap=True)


def show(*, data_dir: Path | None, as_json: bool) -> None:
    """List our images and those on the operator's allowlist."""
    printer = Printer(as_json=as_json)
    settings = load_settings(data_dir)
    profiles = load_profiles(settings.profiles_dir)
    users = {name: [p for p in profiles.names() if profiles.named(p).image == name] for name in profiles.images()}
    with open_image_store(settings, printer) as image_store:
        rows = [
            {**_state(image_store, name), "profiles": users.get(name, [])}
            for name in [*image_store.built, *image_store.allowed]
        ]
        if as_json:
            for row in rows:
                row["packages"] = _packages(image_store, row)
    if as_json:
        printer.emit({"images": rows})
    else:
        printer.rows(table(rows))


def check(image: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Check whether an image can be a sandbox.

    Raises:
        ImageMissing, ImageRefused, ImageUnusable, ImageNotBuilt: why it can't.
    """
    printer = Printer(as_json=as_json)
    with open_image_store(load_settings(data_dir), printer) as image_store:
        named = image in image_store.built or image in image_store.allowed
        found = image_store.check(image_store.find(image) if named else image)
        listed = named or found.id in image_store.allowed.values()
    version = ".".join(map(str, found.python.version))
    if as_json:
        printer.emit({"image": found.id, "python": version, "listed": listed})
        return
    printer.out.print(f"{image} can be a sandbox: Python {version}, id {found.id}", soft_wrap=True)
    if not listed:
        name = image.rpartition("/")[2].partition(":")[0].partition("@")[0]
        printer.out.print(f"To let profiles use it, add to images.yaml:  {name}: {found.id}", soft_wrap=True)


def prune(*, yes: bool, data_dir: Path | None, as_json: bool) -> None:
    """List unused older builds; with `yes`, remove them."""
    printer = Printer(as_json=as_json)
    settings = load_settings(data_dir)
    with open_image_store(settings, printer) as image_store:
        found = image_store.old_builds(_images_in_use(settings))
        rows = [{**build.model_dump(), "removed": False, "problem": ""} for build in found]
        for row, build in zip(rows, found, strict=True) if yes else ():
            row["problem"] = image_store.remove(build)
            row["removed"] = not row["problem"]
    if as_json:
        printer.emit({"builds": rows})
        return
    for row in rows:
        state = f"not removed: {row['problem']}" if row["problem"] else "removed" if row["removed"] else "unused"
        megabytes = row["size_bytes"] / 1e6
        printer.out.print(
            f"{row['name']}  {row['id'][7:19]}  {megabytes:.0f} MB including shared layers  {state}", soft_wrap=True
        )
    if not rows:
        printer.out.print("Nothing to remove: every build of ours is current, in use, or the base of one that is.")
    elif not yes:
        printer.out.print("Nothing was removed. `codesdk images prune --yes` removes these.")


def _images_in_use(settings: Settings) -> set[str]:
    """Return the images that this installation's workers offer or its sessions use."""
    if not settings.has_database():
        return set()
    with (
        closing(Database(settings.resolved_database_url(), settings.database_answer_s)) as database,
        database.read() as connection,
    ):
        return images_in_use(connection)


def table(rows: list[dict[str, Any]]) -> ResponsiveTable:
    """Return a table with one row per image."""
    shown = ResponsiveTable("image", "from", "id", "profiles", "state", folds=("profiles", "state"))
    for row in rows:
        image = (row["id"] or "").removeprefix("sha256:")[:12]
        shown.add_row(row["name"], row["from"], image, ", ".join(row["profiles"]), row["problem"] or "ready")
    return shown


def _state(image_store: ImageStore, name: str) -> dict[str, Any]:
    origin = "sandbox-images" if name in image_store.built else "images.yaml"
    try:
        return {"name": name, "from": origin, "id": image_store.find(name), "problem": ""}
    except Fault as fault:
        return {"name": name, "from": origin, "id": None, "problem": str(fault)}


def _packages(image_store: ImageStore, row: dict[str, Any]) -> list[dict[str, Any]]:
    if row["id"] is None or row["from"] != "sandbox-images":
        return []  # only our own images have a trustworthy package list
    return [package.model_dump() for package in image_store.packages(row["id"])]


@contextmanager
def open_image_store(settings: Settings, printer: Printer) -> Iterator[ImageStore]:
    """Open the images of the running engine. Starts an engine if needed, and stops it again.

    Raises:
        Fault: no engine answers, or the operator's allowlist is invalid.
    """
    settings.prepare_data_dir()  # needs the instance id, which labels the probe container
    engine = docker_engine.ensure(printer.progress, docker_host=settings.docker_host)
    try:
        yield ImageStore(settings, engine)
    finally:
        engine.stop()
