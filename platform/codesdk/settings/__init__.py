"""What an operator may set, from `CODESDK_*` environment variables; nothing else reads the environment."""

from codesdk.settings.reading import SettingWrong, read_settings
from codesdk.settings.settings import DataDirUnusable, PortTaken, Settings, default_data_dir

__all__ = ["DataDirUnusable", "PortTaken", "SettingWrong", "Settings", "default_data_dir", "read_settings"]
