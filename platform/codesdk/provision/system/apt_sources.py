"""The Debian mirror that this machine is configured for, read from apt's own files (sources.list(5))."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

APT_DIRECTORY = Path("/etc/apt")
SCHEMES = ("http://", "https://", "file:")
"""What debootstrap can fetch from."""


@dataclass(frozen=True)
class Source:
    """One archive and suite."""

    uri: str
    suite: str
    components: tuple[str, ...]

    def line(self) -> str:
        """In one-line style, for a machine that trusts the distribution's own keys."""
        return f"deb {self.uri} {self.suite} {' '.join(self.components)}"


def parse_list(text: str) -> list[Source]:
    """One-line style (`*.list`): `deb [options] uri suite component…`; source packages are not of interest."""
    found = []
    for raw in text.splitlines():
        words = re.sub(r"\[[^\]]*\]", " ", raw.partition("#")[0]).split()
        if len(words) >= 4 and words[0] == "deb":  # noqa: PLR2004 - type, uri, suite, one component
            found.append(Source(words[1].rstrip("/"), words[2], tuple(words[3:])))
    return found


def parse_deb822(text: str) -> list[Source]:
    """Deb822 style (`*.sources`): stanzas of `Types`, `URIs`, `Suites`, `Components`; disabled ones are skipped."""
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
        if line[:1].isspace():  # a folded line goes on with the field before it
            fields[key] = f"{fields.get(key, '')} {line.strip()}"
            continue
        key, _, value = line.partition(":")
        key = key.strip().lower()
        fields[key] = value.strip()
    return fields


def configured_sources(directory: Path = APT_DIRECTORY) -> list[Source]:
    """Every enabled binary source of this machine, in apt's order."""
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
    """Cloud images name a file of mirrors (`mirror+file:/etc/apt/mirrors/debian.list`); take its first."""
    if not source.uri.startswith("mirror+file:"):
        return source
    path = Path("/" + source.uri.removeprefix("mirror+file:").lstrip("/"))
    if not path.is_file():
        return None
    lines = (line.partition("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines())
    first = next((words[0] for words in lines if words), None)
    return None if first is None else Source(first.rstrip("/"), source.suite, source.components)


def mirror_of(codename: str, sources: Iterable[Source]) -> Source | None:
    """The archive that holds the release itself: its suite is the codename, with `main`; no add-on archive."""
    for source in sources:
        if source.suite == codename and "main" in source.components and source.uri.startswith(SCHEMES):
            return source
    return None


def release_sources(codename: str, sources: Iterable[Source]) -> list[Source]:
    """The release, its updates and its security fixes, for the image's own apt."""
    suites = {codename, f"{codename}-updates", f"{codename}-security"}
    fit = (source for source in sources if source.suite in suites and source.uri.startswith(SCHEMES[:2]))
    return list(dict.fromkeys(fit))
