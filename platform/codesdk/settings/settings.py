"""All groups of settings in one, as processes read and hand them on."""

from __future__ import annotations

from pydantic_settings import SettingsConfigDict

from codesdk.settings.api_address import ApiAddress
from codesdk.settings.artifacts import ArtifactStore
from codesdk.settings.data_directory import DataDirectory
from codesdk.settings.engine import EngineAddress
from codesdk.settings.folders import Folders
from codesdk.settings.host import WorkerHost
from codesdk.settings.operator_files import OperatorFiles
from codesdk.settings.outward import Outward
from codesdk.settings.quotas import TenantQuotas
from codesdk.settings.sessions import SessionRules


class Settings(  # the reference's order from its end: pydantic takes the fields of the last base first
    TenantQuotas,
    Outward,
    SessionRules,
    WorkerHost,
    OperatorFiles,
    ArtifactStore,
    Folders,
    ApiAddress,
    EngineAddress,
    DataDirectory,
):
    """Everything that the processes of one installation share."""

    model_config = SettingsConfigDict(defer_build=False)
