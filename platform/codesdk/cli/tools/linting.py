"""`codesdk tools lint`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from codesdk.cli.effective_settings import load_settings
from codesdk.cli.policy import Format
from codesdk.cli.policy.reports import write_findings
from codesdk.cli.tools import ToolFormat
from codesdk.cli.tools.loading import directory_of
from codesdk.registry import Finding, ManifestInvalid, Registry, lint, manifest_files, read_prompts
from codesdk.sandbox.profiles.loader import load_profiles


def run_lint(paths: list[Path], tools: Path | None, form: ToolFormat, *, own: bool, strict: bool) -> int:
    """Report all findings. Returns 65 if a manifest is invalid.

    Raises:
        ManifestInvalid: with `own`, the installation's tools are invalid. ProfileInvalid: its profiles are.
    """
    shared = Registry.load(directory_of(tools)) if own else None
    found = list(_lint_paths(paths or [directory_of(tools)], shared))
    where = ", ".join(str(path) for path in paths or [directory_of(tools)])
    return write_findings(where, found, Format(form.value), strict=strict)


def _lint_paths(paths: list[Path], shared: Registry | None) -> Iterable[Finding]:
    files: list[Path] = []
    for path in paths:
        inside = manifest_files(path) if path.is_dir() else [path]
        if not inside:
            yield Finding(str(path), 1, 1, "There is no tool manifest (`*.yaml`) in this directory.", fatal=True)
        try:
            read_prompts(path, taken=shared.prompts if shared is not None else ())  # a file has no prompts
        except ManifestInvalid as error:
            yield Finding(error.file, error.line, error.column, error.problem, fatal=True)
        files += inside
    yield from lint(files, shared, load_profiles(load_settings().profiles_dir).bounds())
