"""What all groups of settings have in common: where their values come from."""

from __future__ import annotations

import os

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SecretsSettingsSource, SettingsConfigDict

CREDENTIALS_DIR = "CODESDK_CREDENTIALS_DIR"
"""Names a directory of files `codesdk_<setting>`: for values that must not stand in a process's environment."""


class SettingsGroup(BaseSettings):
    """Settings that belong together. `Settings` is all groups in one."""

    model_config = SettingsConfigDict(
        env_prefix="CODESDK_",
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
        defer_build=True,  # a group alone is read by nobody: only `Settings` builds its validator, when it is imported
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (the signature is pydantic's)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What was passed, then the environment, then files of secrets where a directory of them is named."""
        credentials = os.environ.get(CREDENTIALS_DIR)
        files = (SecretsSettingsSource(settings_cls, secrets_dir=credentials),) if credentials else ()
        return (init_settings, env_settings, *files)


def split_names(given: str) -> list[str]:
    """Names with commas between."""
    return [name.strip().lower() for name in given.split(",") if name.strip()]
