"""Settings from command-line options and environment; options win."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from codesdk.settings import Settings, read_settings, shipped_policies


def load_settings(
    data_dir: Path | None = None, policies: Path | None = None, port: int | None = None, **more: Any
) -> Settings:
    """The settings from options and environment.

    Raises:
        SettingWrong: names the invalid setting.
    """
    given = {"data_dir": _absolute(data_dir), "policies_dir": _policies(policies), "port": port, **more}
    settings = read_settings(**{name: value for name, value in given.items() if value is not None})
    # Children run in other directories: a relative path must mean the same place there.
    return settings.model_copy(update={"data_dir": settings.data_dir.absolute()})


def settings_environment(settings: Settings) -> dict[str, str]:
    """The `CODESDK_*` variables that pass these settings to a child process."""
    values = {name: getattr(settings, name) for name in Settings.model_fields}
    # An empty value counts as unset and hides the variable that the child would inherit.
    return {f"CODESDK_{name.upper()}": _environment_value(value) for name, value in values.items()}


def _environment_value(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _policies(path: Path | None) -> Path | None:
    """The directory, or the shipped bundle of that name."""
    shipped = shipped_policies(str(path)) if path is not None and not path.exists() else None
    return shipped or _absolute(path)


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.expanduser().absolute()
