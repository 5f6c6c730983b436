"""`codesdk images`: build, list, check."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from codesdk.cli.listing import Listing
from codesdk.cli.places import settings_of
from codesdk.cli.voice import Voice
from codesdk.errors import Fault
from codesdk.provision import engine as docker_engine
from codesdk.provision.sandbox_image import ImageUnknown, Shelf
from codesdk.sandbox.profiles import DEFAULT, load_profiles
from codesdk.sandbox.store import images_wanted
from codesdk.settings import Settings
from codesdk.storage.database import Database


def build(names: list[str], *, data_dir: Path | None, as_json: bool) -> None:
    """Build what is missing of these; none: the default profile's image.

    Raises:
        ImageUnknown: a name that is no folder of ours. Fault: a build failed.
    """
    voice = Voice(as_json=as_json)
    settings = settings_of(data_dir)
    wanted = names or [load_profiles(settings.profiles_dir).named(DEFAULT).image]
    with shelf_of(settings, voice) as shelf:
        for name in wanted:
            if name not in shelf.built:
                raise ImageUnknown(name, shelf.built, settings.resolved_images_file())
        built = {name: shelf.provide(name, voice.say) for name in wanted}
    if as_json:
        voice.give({"images": built})
        return
    for name, image in built.items():
        voice.out.print(f"{name}  {image}", soft_wrap=True)


def show(*, data_dir: Path | None, as_json: bool) -> None:
    """List ours and the operator's."""
    voice = Voice(as_json=as_json)
    settings = settings_of(data_dir)
    profiles = load_profiles(settings.profiles_dir)
    users = {name: [p for p in profiles.names() if profiles.named(p).image == name] for name in profiles.images()}
    with shelf_of(settings, voice) as shelf:
        rows = [{**_state(shelf, name), "profiles": users.get(name, [])} for name in [*shelf.built, *shelf.allowed]]
        if as_json:
            for row in rows:
                row["packages"] = _packages(shelf, row)
    if as_json:
        voice.give({"images": rows})
    else:
        voice.rows(table(rows))


def check(image: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Check one.

    Raises:
        ImageMissing, ImageRefused, ImageUnusable, ImageNotBuilt: what stands against it.
    """
    voice = Voice(as_json=as_json)
    with shelf_of(settings_of(data_dir), voice) as shelf:
        named = image in shelf.built or image in shelf.allowed
        found = shelf.check(shelf.find(image) if named else image)
        listed = named or found.id in shelf.allowed.values()
    version = ".".join(map(str, found.python.version))
    if as_json:
        voice.give({"image": found.id, "python": version, "listed": listed})
        return
    voice.out.print(f"{image} can be a sandbox: Python {version}, id {found.id}", soft_wrap=True)
    if not listed:
        name = image.rpartition("/")[2].partition(":")[0].partition("@")[0]
        voice.out.print(f"A profile may name it once images.yaml lists it:  {name}: {found.id}", soft_wrap=True)


def prune(*, yes: bool, data_dir: Path | None, as_json: bool) -> None:
    """Show the older builds that nothing uses; with `yes` remove them."""
    voice = Voice(as_json=as_json)
    settings = settings_of(data_dir)
    with shelf_of(settings, voice) as shelf:
        found = shelf.old_builds(_wanted(settings))
        rows = [{**build.model_dump(), "removed": False, "problem": ""} for build in found]
        for row, build in zip(rows, found, strict=True) if yes else ():
            row["problem"] = shelf.remove(build)
            row["removed"] = not row["problem"]
    if as_json:
        voice.give({"builds": rows})
        return
    for row in rows:
        state = f"not removed: {row['problem']}" if row["problem"] else "removed" if row["removed"] else "can go"
        megabytes = row["size_bytes"] / 1e6
        voice.out.print(
            f"{row['name']}  {row['id'][7:19]}  {megabytes:.0f} MB with what it shares  {state}", soft_wrap=True
        )
    if not rows:
        voice.out.print("Nothing to remove: every build of ours is current, in use, or below one that is.")
    elif not yes:
        voice.out.print("Nothing was removed. `codesdk images prune --yes` removes these.")


def _wanted(settings: Settings) -> set[str]:
    """What this installation's workers offer and its sessions run in."""
    if not settings.database_url and not (settings.data_dir / "codesdk.db").exists():
        return set()
    with (
        closing(Database(settings.resolved_database_url(), settings.database_answer_s)) as database,
        database.read() as connection,
    ):
        return images_wanted(connection)


def table(rows: list[dict[str, Any]]) -> Listing:
    """One row an image."""
    shown = Listing("image", "from", "id", "profiles", "state", folds=("profiles", "state"))
    for row in rows:
        image = (row["id"] or "").removeprefix("sha256:")[:12]
        shown.add_row(row["name"], row["from"], image, ", ".join(row["profiles"]), row["problem"] or "ready")
    return shown


def _state(shelf: Shelf, name: str) -> dict[str, Any]:
    origin = "sandbox-images" if name in shelf.built else "images.yaml"
    try:
        return {"name": name, "from": origin, "id": shelf.find(name), "problem": ""}
    except Fault as fault:
        return {"name": name, "from": origin, "id": None, "problem": str(fault)}


def _packages(shelf: Shelf, row: dict[str, Any]) -> list[dict[str, Any]]:
    if row["id"] is None or row["from"] != "sandbox-images":
        return []  # what another image says of itself is nobody's record
    return [package.model_dump() for package in shelf.packages(row["id"])]


@contextmanager
def shelf_of(settings: Settings, voice: Voice) -> Iterator[Shelf]:
    """The images on the engine that answers; one that was started for this is stopped again.

    Raises:
        Fault: no engine answers, or the operator's list cannot be used.
    """
    settings.prepare_data_dir()  # the instance id lies there, which labels the container that looks into an image
    environ = {**os.environ, **({"CODESDK_DOCKER_HOST": host} if (host := settings.docker_host) else {})}
    engine = docker_engine.ensure(voice.say, environ=environ)
    try:
        yield Shelf(settings, engine)
    finally:
        engine.stop()
