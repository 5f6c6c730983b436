"""The installation's settings, from `CODESDK_*` variables, and the files by which its processes find each other.

Nothing else reads the environment.
"""

from codesdk.settings.settings import (
    DataDirUnusable,
    PortTaken,
    Settings,
    SettingWrong,
    default_data_dir,
    read_settings,
    shipped_policies,
)

__all__ = [
    "DataDirUnusable",
    "PortTaken",
    "SettingWrong",
    "Settings",
    "default_data_dir",
    "read_settings",
    "shipped_policies",
]
