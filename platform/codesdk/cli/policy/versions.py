"""`codesdk policy versions`, `promote`, `rollback` and `shadow`, over the daemon's API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from codesdk.cli.api_client import connect
from codesdk.cli.console.terminal import Printer, ResponsiveTable, format_time
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.policy.decisions import NotACall
from codesdk.errors import ExitCode
from codesdk.policy.bundles.bundle_files import read_bundle_texts, read_test_texts
from codesdk.policy.rollout.version_service import SHORT_HASH

SHORT_HASH_CHARS = 19
"""Characters of a hash in a table: `sha256:` and twelve."""


def list_versions(data_dir: Path | None, *, tenant: bool, as_json: bool) -> int:
    """List the versions that were in force, newest first, with who promoted them."""
    printer = Printer(as_json=as_json)
    with connect(load_settings(data_dir)) as daemon:
        found = daemon.request("GET", "/v1/policy/versions", params={"layer": _layer(tenant=tenant)})
    if as_json:
        printer.emit(found)
        return ExitCode.OK
    if found["problem"] is not None:
        printer.out.print(f"warning: not in force: {found['problem']}", soft_wrap=True, markup=False)
    shown = ResponsiveTable("version", "bundle", "kept (UTC)", "by", "")
    for one in found["versions"]:
        marks = [name for name, on in (("in force", one["active"]), ("shadow", one["shadow"])) if on]
        marks += ["pinned"] if one["hash"] == found["pinned"] else []
        shown.add_row(
            one["hash"], one["name"], format_time(one["made_at"]), one["made_by"] or "files", ", ".join(marks)
        )
    printer.rows(shown)
    record = ResponsiveTable("when (UTC)", "what", "version", "before", "by", "comment", folds=("comment",))
    for entry in found["changes"]:
        short = [(entry[name] or "")[:SHORT_HASH_CHARS] for name in ("hash", "before")]
        record.add_row(format_time(entry["at"]), entry["action"], *short, entry["by"] or "files", entry["comment"])
    printer.rows(record)
    return ExitCode.OK


def promote(wanted: str, comment: str, data_dir: Path | None, *, tenant: bool, as_json: bool) -> int:
    """Promote a bundle or a version."""
    body = {"layer": _layer(tenant=tenant), "comment": comment, **_version_or_files(wanted)}
    printer = Printer(as_json=as_json)
    with connect(load_settings(data_dir)) as daemon:
        made = daemon.request("POST", "/v1/policy/promote", json=body)
    if as_json:
        printer.emit(made)
        return ExitCode.OK
    for finding in made["findings"]:
        printer.out.print(f"warning: {finding}", soft_wrap=True, markup=False)
    printer.out.print(
        f"{made['version']['hash']} is in force; `codesdk policy rollback` reverts to the version before.",
        soft_wrap=True,
    )
    return ExitCode.OK


def roll_back(comment: str, data_dir: Path | None, *, tenant: bool, to_files: bool, force: bool, as_json: bool) -> int:
    """Go back to the previous version, or to the files."""
    body = {"layer": _layer(tenant=tenant), "comment": comment, "to_files": to_files, "force": force}
    with connect(load_settings(data_dir)) as daemon:
        back = daemon.request("POST", "/v1/policy/rollback", json=body)
    how = ", from the files." if to_files else ". `codesdk policy rollback --to-files` puts the files into force."
    Printer(as_json=as_json).answer(back, f"{back['hash'] or 'Nothing'} is in force{how}")
    return ExitCode.OK


def start_shadow(wanted: str, data_dir: Path | None, *, tenant: bool, as_json: bool) -> int:
    """Start a shadow bundle on live calls."""
    body = {"layer": _layer(tenant=tenant), **_version_or_files(wanted)}
    with connect(load_settings(data_dir)) as daemon:
        made = daemon.request("POST", "/v1/policy/shadow", json=body)
    text = f"{made['hash']} runs as a shadow; `codesdk policy shadow status` shows its decisions."
    Printer(as_json=as_json).answer(made, text)
    return ExitCode.OK


def shadow_status(data_dir: Path | None, *, tenant: bool, as_json: bool, end: bool = False) -> int:
    """Print how the shadow decided so far; `end` also stops it."""
    printer = Printer(as_json=as_json)
    params = {"layer": _layer(tenant=tenant)}
    with connect(load_settings(data_dir)) as daemon:
        found = daemon.request("GET", "/v1/policy/shadow", params=params)
        if end:
            daemon.request("DELETE", "/v1/policy/shadow", params=params)
    if as_json:
        printer.emit(found)
        return ExitCode.OK
    if found["version"] is None:
        printer.out.print("No shadow runs.")
        return ExitCode.OK
    total = sum(one["count"] for one in found["differences"])
    other = sum(one["count"] for one in found["differences"] if one["before"] != one["after"])
    summary = f"{found['version']['hash']}: {total} calls, {other} decided differently, {found['skipped']} skipped"
    printer.out.print(summary, soft_wrap=True)
    shown = ResponsiveTable("decided", "candidate", "by", "calls", "last call")
    for one in found["differences"]:
        shown.add_row(
            one["before"], one["after"] or "failed", one["rule"] or "default", str(one["count"]), one["last_call"]
        )
    printer.rows(shown)
    return ExitCode.OK


def _layer(*, tenant: bool) -> str:
    return "tenant" if tenant else "shared"


def _version_or_files(given: str) -> dict[str, Any]:
    directory = Path(given)
    if SHORT_HASH.fullmatch(given) and not directory.is_dir():
        return {"hash": given}
    if not directory.is_dir():
        advice = "`codesdk policy versions` shows hashes; eight digits of one are enough."
        raise NotACall(f"{given} is neither a directory nor a hash.", advice=advice)
    return {"files": {**read_bundle_texts(directory), **read_test_texts(directory)}}
