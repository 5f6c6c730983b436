"""Detects the Debian or Ubuntu release and installs packages if allowed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from codesdk.provision.system.command import ProgressCallback, ProvisionFailed, root

OS_RELEASE = Path("/etc/os-release")
APT_UPDATE_S = 300.0
APT_INSTALL_S = 900.0


@dataclass(frozen=True)
class Release:
    """The distribution, from os-release(5)."""

    id: str
    like: tuple[str, ...]
    codename: str

    @property
    def has_apt(self) -> bool:
        """Whether this is Debian, Ubuntu or a derivative."""
        return bool({"debian", "ubuntu"} & {self.id, *self.like})


def parse_os_release(text: str) -> Release:
    """Parse os-release(5). Missing fields are empty."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#"):
            try:
                fields[key] = "".join(shlex.split(value)[:1])
            except ValueError:  # an unclosed quote: ignore the line
                continue
    return Release(
        id=fields.get("ID", "").lower(),
        like=tuple(fields.get("ID_LIKE", "").lower().split()),
        codename=fields.get("VERSION_CODENAME", ""),
    )


def release(path: Path = OS_RELEASE) -> Release:
    """Return this machine's release; all fields are empty if the file is missing (macOS, a bare container)."""
    return parse_os_release(path.read_text(encoding="utf-8")) if path.is_file() else Release("", (), "")


def install_command(packages: tuple[str, ...]) -> str:
    """Return the install command for a person to type."""
    return f"sudo apt-get update && sudo apt-get install -y --no-install-recommends {' '.join(packages)}"


def can_install() -> bool:
    """Whether `install` can work: apt and root are available."""
    return release().has_apt and root() is not None


def install(packages: tuple[str, ...], why: str, progress: ProgressCallback) -> None:
    """Install packages from the configured mirrors.

    Raises:
        ProvisionFailed: not Debian or Ubuntu, not root, or apt failed. The advice is the command to type.
    """
    way = root()
    if not release().has_apt:
        raise ProvisionFailed(
            f"{why}, and this is not Debian or Ubuntu.",
            advice=f"Install the equivalent of {' '.join(packages)} and run this again.",
        )
    if way is None:
        raise ProvisionFailed(f"{why}, and root is needed to install it.", advice=f"Run: {install_command(packages)}")
    progress(f"{why}: installing {' '.join(packages)} from the machine's Debian mirrors (apt-get)")
    apt = ("DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=120")
    words = (*apt, "install", "-y", "--no-install-recommends", *packages)
    done = way.run(*words, deadline_s=APT_INSTALL_S)
    if not done.ok:  # package lists are missing or outdated: update them, once
        refreshed = way.run(*apt, "update", deadline_s=APT_UPDATE_S)
        done = way.run(*words, deadline_s=APT_INSTALL_S) if refreshed.ok else refreshed
    if not done.ok:
        raise ProvisionFailed(
            f"apt could not install {' '.join(packages)}: {done.output_tail()}.",
            advice=f"Run it by hand to see more: {install_command(packages)}",
        )
