"""All groups of settings in one, as processes read and hand them on."""

from __future__ import annotations

from pydantic_settings import SettingsConfigDict

from codesdk.settings.api_address import ApiSettings
from codesdk.settings.artifacts import ArtifactSettings
from codesdk.settings.data_directory import DataDirectorySettings
from codesdk.settings.engine import EngineSettings
from codesdk.settings.folders import FolderSettings
from codesdk.settings.host import HostSettings
from codesdk.settings.operator_files import OperatorFileSettings
from codesdk.settings.outbound import OutboundSettings
from codesdk.settings.quotas import QuotaSettings
from codesdk.settings.sessions import SessionSettings


class Settings(  # the reference's order from its end: pydantic takes the fields of the last base first
    QuotaSettings,
    OutboundSettings,
    SessionSettings,
    HostSettings,
    OperatorFileSettings,
    ArtifactSettings,
    FolderSettings,
    ApiSettings,
    EngineSettings,
    DataDirectorySettings,
):
    """Everything that the processes of one installation share."""

    model_config = SettingsConfigDict(defer_build=False)
