"""The folders of policies, tools, images and profiles: those that ship with the product, or the operator's."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from codesdk.settings.group import SettingsGroup

_PACKAGE = Path(__file__).resolve().parent.parent


def _shipped(name: str) -> Path:
    """A folder that ships with the product: beside `platform/` in a checkout, inside the package in a wheel."""
    checkout = _PACKAGE.parent.parent / name
    return checkout if checkout.is_dir() else _PACKAGE / "_data" / name


class FolderSettings(SettingsGroup):
    """What is read from files that people write."""

    policies_dir: Path = Field(default_factory=lambda: _shipped("policies") / "default")
    tenant_policies_dir: str = ""
    """Has a directory with a bundle for each tenant that adds rules of its own, named by the tenant's id; empty: none."""
    tenant_tools_dir: str = ""
    """Has a directory with manifests for each tenant that has tools of its own, named by the tenant's id; empty: none."""
    registry_dir: Path = Field(default_factory=lambda: _shipped("tool-registry"))
    images_dir: Path = Field(default_factory=lambda: _shipped("sandbox-images"))
    profiles_dir: Path = Field(default_factory=lambda: _shipped("sandbox-images") / "profiles")

    def tenant_policies(self) -> Path | None:
        """Where tenants' own bundles lie."""
        return Path(self.tenant_policies_dir) if self.tenant_policies_dir else None

    def tenant_tools(self) -> Path | None:
        """Where tenants' own tools lie."""
        return Path(self.tenant_tools_dir) if self.tenant_tools_dir else None
