"""Reads the settings, and says which one is wrong in a person's words."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from codesdk.errors import ExitCode, Fault
from codesdk.settings.settings import Settings


class SettingWrong(Fault):
    """An option or a CODESDK_* variable has a value that cannot be."""

    code = "SETTING_WRONG"
    status = 400
    exit_code = ExitCode.USAGE


def read_settings(**given: Any) -> Settings:
    """The settings that were given, over those of the environment.

    Raises:
        SettingWrong: names the setting.
    """
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"])
        raise SettingWrong(
            f"The setting {name} is wrong: {first['msg'].removeprefix('Value error, ').lower()}.",
            advice=f"Mend the option, or the variable CODESDK_{name.upper()}.",
        ) from error
