"""Parses command-line values: names, durations, limits."""

from __future__ import annotations

import re

from pydantic import TypeAdapter, ValidationError

from codesdk.domain.quotas import Resource
from codesdk.errors import ExitCode, Fault
from codesdk.tenancy.principal import Name

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}


class InputWrong(Fault):
    """A name, a duration or a limit is invalid."""

    code = "INPUT_WRONG"
    status = 400
    exit_code = ExitCode.USAGE


def parse_duration(text: str) -> float:
    """Parse `90d`, `12h`, `30m` or `45s` into seconds.

    Raises:
        InputWrong: it has none of these forms, or is zero.
    """
    found = re.fullmatch(r"([1-9][0-9]{0,5})([smhd])", text)
    if found is None:
        raise InputWrong(f"{text!r} is not a duration.", advice="Write it as 45s, 30m, 12h or 90d.")
    return float(found[1]) * _SECONDS[found[2]]


def parse_quota(text: str) -> tuple[Resource, int | None]:
    """Parse `sessions=10`, `artifact_bytes=5GiB`, `sessions=none` (0: no limit) or `sessions=default` (None).

    Raises:
        InputWrong: it has none of these forms.
    """
    name, _, amount = text.partition("=")
    if name not in [resource.value for resource in Resource]:
        known = ", ".join(resource.value for resource in Resource)
        raise InputWrong(f"{text!r} sets no known limit.", advice=f"Write RESOURCE=AMOUNT; resources: {known}.")
    if amount in ("none", "default"):
        return Resource(name), 0 if amount == "none" else None
    found = re.fullmatch(r"([1-9][0-9]{0,17})(|[KMGT]iB)", amount)
    if found is None:
        raise InputWrong(f"{text!r} has no amount.", advice="Write a number, with KiB, MiB, GiB or TiB; none; default.")
    return Resource(name), int(found[1]) * _UNITS[found[2]]


def validate_group_name(name: str) -> str:
    """Return the group name if policy files may use it.

    Raises:
        InputWrong: it is invalid.
    """
    if re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name) is None:
        raise InputWrong(
            f"{name!r} is not a group name.",
            advice="Use lower-case letters, digits and . _ -, at most 64: finance-leads.",
        )
    return name


def validate_name(name: str) -> str:
    """Return the name if the API accepts it.

    Raises:
        InputWrong: it is invalid.
    """
    try:
        return TypeAdapter[str](Name).validate_python(name)
    except ValidationError as error:
        raise InputWrong(
            f"{name!r} is not a name.",
            advice="Use letters, digits, blanks and @ . + - _, at most 120, with a letter, digit or _ first.",
        ) from error
