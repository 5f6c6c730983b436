"""Loads profiles from `sandbox-images/profiles/<name>.yaml`, strictly: if one file is invalid, none is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from codesdk.documents import SIZE, TIME, Document, DocumentUnreadable, FileInvalid, nearest, read_document
from codesdk.domain.decisions import SandboxBounds
from codesdk.errors import ExitCode, Fault
from codesdk.sandbox.profiles.profile import RUNTIMES, Profile

DEFAULT = "default"
"""The profile of sessions that name none; its file is required."""
_UNIT_PARSERS = {"_bytes": SIZE, "_s": TIME}


class ProfileInvalid(FileInvalid):
    """A profile file is invalid; no profile is loaded."""

    code = "PROFILE_INVALID"


class ProfileUnknown(Fault):
    """No profile has this name."""

    code = "PROFILE_UNKNOWN"
    status = 422
    exit_code = ExitCode.USAGE

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        near = nearest(name, known)
        advice = f"Did you mean `{near}`?" if near else f"There are: {', '.join(known)}."
        super().__init__(f"There is no profile `{name[:100]}`.", advice=advice, details={"known": list(known)})


class ProfileFile(Profile):
    """What a profile file may hold: the profile's fields, and what it is for."""

    version: Literal[1]
    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")
    """The file's name without `.yaml`."""
    description: str = Field(min_length=1, max_length=200)
    """One sentence: the profile's purpose."""


class Profiles:
    """The profiles that sessions may name."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._profiles = dict(sorted(profiles.items()))

    def named(self, name: str) -> Profile:
        """Return the profile of this name.

        Raises:
            ProfileUnknown: with the nearest name.
        """
        if name not in self._profiles:
            raise ProfileUnknown(name, self.names())
        return self._profiles[name]

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        return tuple(self._profiles)

    def bounds(self) -> dict[str, SandboxBounds]:
        """Return each profile's bounds of a call, for tools whose manifest names it."""
        return {name: profile.bounds() for name, profile in self._profiles.items()}

    def images(self) -> tuple[str, ...]:
        """Return the names of the images that the profiles need, the default profile's first."""
        first = self._profiles[DEFAULT].image
        return (first, *sorted({profile.image for profile in self._profiles.values()} - {first}))


def load_profiles(directory: Path) -> Profiles:
    """Read all profiles of a directory.

    Raises:
        ProfileInvalid: the first invalid file, or the default profile is missing.
    """
    found = {path.stem: read_profile(path) for path in sorted(directory.glob("*.yaml"))}
    if DEFAULT not in found:
        raise ProfileInvalid(str(directory / f"{DEFAULT}.yaml"), 1, 1, "There must be a profile of this name.")
    return Profiles(found)


def read_profile(path: Path) -> Profile:
    """Read one file.

    Raises:
        ProfileInvalid: with line, column and, for a word close to a known one, a suggestion.
    """
    try:
        return _profile(path.stem, read_document(path))
    except DocumentUnreadable as error:
        raise ProfileInvalid.of(path, error) from error


def _profile(stem: str, document: Document) -> Profile:
    if not isinstance(document.data, dict):
        raise DocumentUnreadable(document.place(()), "A profile is a mapping of fields.")
    values = {key: _parse_units(document, key, value) for key, value in document.data.items()}
    read = Document(values, document.places).model(ProfileFile)
    if read.name != stem:
        raise DocumentUnreadable(document.place(("name",)), f"`name` is `{read.name}` in a file of `{stem}`.", stem)
    if read.runtime not in RUNTIMES:
        message = f"`runtime`: `{read.runtime}` is not one of those that are tested ({', '.join(RUNTIMES)})."
        raise DocumentUnreadable(document.place(("runtime",)), message, nearest(read.runtime, RUNTIMES))
    return Profile.model_validate(read.model_dump(include=set(Profile.model_fields)))


def _parse_units(document: Document, key: str, value: object) -> object:
    """Return a size or time as a number. Rejects booleans, which Python counts as integers."""
    suffix = unit_suffix(key)
    field = Profile.model_fields.get(key)
    if isinstance(value, bool) and field is not None and field.annotation in (int, float):
        raise DocumentUnreadable(document.place((key,)), f"`{key}` is a number.")
    if suffix is None or not isinstance(value, str):
        return value
    try:
        return _UNIT_PARSERS[suffix].read(value)
    except ValueError as error:
        raise DocumentUnreadable(document.place((key,)), f"`{key}`: {error}") from error


def unit_suffix(field: str) -> str | None:
    """Return `_bytes` or `_s` if the field's values may have a unit, else None."""
    return next((suffix for suffix in _UNIT_PARSERS if field.endswith(suffix)), None)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a profile file, for editors."""
    made = ProfileFile.model_json_schema()
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["title"] = "Profile of a CodeSDK sandbox"
    made["description"] = "A file of sandbox-images/profiles/."
    for name, field in made["properties"].items():
        field.pop("title", None)
        if (suffix := unit_suffix(name)) is not None:
            number = {word: field.pop(word) for word in list(field) if word not in ("default", "description")}
            field["anyOf"] = [number, _UNIT_PARSERS[suffix].schema()]
    made["properties"]["runtime"]["enum"] = sorted(RUNTIMES)
    return made
