"""What an operator may set, from `CODESDK_*` environment variables; nothing else reads the environment."""

from codesdk.settings.api_address import PortTaken
from codesdk.settings.data_directory import DataDirUnusable, default_data_dir
from codesdk.settings.loader import SettingWrong, read_settings
from codesdk.settings.settings import Settings

__all__ = ["DataDirUnusable", "PortTaken", "SettingWrong", "Settings", "default_data_dir", "read_settings"]
