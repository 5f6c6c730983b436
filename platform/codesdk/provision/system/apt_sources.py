"""Reads this machine's Debian mirrors from apt's configuration (sources.list(5))."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

APT_DIRECTORY = Path("/etc/apt")
SCHEMES = ("http://", "https://", "file:")
"""URL schemes that debootstrap can fetch from."""


@dataclass(frozen=True)
class Source:
    """One archive and suite."""

    uri: str
    suite: str
    components: tuple[str, ...]

    def line(self) -> str:
        """The source in one-line style, for a machine that trusts the distribution's keys."""
        return f"deb {self.uri} {self.suite} {' '.join(self.components)}"


def parse_list(text: str) -> list[Source]:
    """Parse one-line style (`*.list`): `deb [options] uri suite component…`. Skips source packages."""
    found = []
    for raw in text.splitlines():
        words = re.sub(r"\[[^\]]*\]", " ", raw.partition("#")[0]).split()
        if len(words) >= 4 and words[0] == "deb":  # noqa: PLR2004 - type, uri, suite, one component
            found.append(Source(words[1].rstrip("/"), words[2], tuple(words[3:])))
    return found


def parse_deb822(text: str) -> list[Source]:
    """Parse deb822 style (`*.sources`): stanzas of `Types`, `URIs`, `Suites`, `Components`. Skips disabled ones."""
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        fields = _fields(stanza)
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in {"no", "false"}:
            continue
        components = tuple(fields.get("components", "").split())
        found += [
            Source(uri.rstrip("/"), suite, components)
            for uri in fields.get("uris", "").split()
            for suite in fields.get("suites", "").split()
            if components
        ]
    return found


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    key = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace():  # a continuation line of the previous field
            fields[key] = f"{fields.get(key, '')} {line.strip()}"
            continue
        key, _, value = line.partition(":")
        key = key.strip().lower()
        fields[key] = value.strip()
    return fields


def configured_sources(directory: Path = APT_DIRECTORY) -> list[Source]:
    """Return every enabled binary source of this machine, in apt's order."""
    found: list[Source] = []
    parts = directory / "sources.list.d"
    files = [directory / "sources.list", *(sorted(parts.iterdir()) if parts.is_dir() else [])]
    for file in files:
        if not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        if file.suffix == ".list":
            found += parse_list(text)
        elif file.suffix == ".sources":
            found += parse_deb822(text)
    return [resolved for source in found if (resolved := _resolve_mirror_file(source)) is not None]


def _resolve_mirror_file(source: Source) -> Source | None:
    """Resolve the mirror file of cloud images (`mirror+file:/etc/apt/mirrors/debian.list`) to its first mirror."""
    if not source.uri.startswith("mirror+file:"):
        return source
    path = Path("/" + source.uri.removeprefix("mirror+file:").lstrip("/"))
    if not path.is_file():
        return None
    lines = (line.partition("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines())
    first = next((words[0] for words in lines if words), None)
    return None if first is None else Source(first.rstrip("/"), source.suite, source.components)


def mirror_of(codename: str, sources: Iterable[Source]) -> Source | None:
    """Return the release's main archive: its suite is the codename and it has `main`. Ignores add-on archives."""
    for source in sources:
        if source.suite == codename and "main" in source.components and source.uri.startswith(SCHEMES):
            return source
    return None


def release_sources(codename: str, sources: Iterable[Source]) -> list[Source]:
    """Return the sources of the release, its updates and its security fixes, for apt in the image."""
    suites = {codename, f"{codename}-updates", f"{codename}-security"}
    fit = (source for source in sources if source.suite in suites and source.uri.startswith(SCHEMES[:2]))
    return list(dict.fromkeys(fit))
