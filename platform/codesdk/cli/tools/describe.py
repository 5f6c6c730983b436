"""`codesdk tools list` and `show`."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.text import Text

from codesdk.cli.console.terminal import Printer, ResponsiveTable
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.policy.comparisons import active_bundles
from codesdk.cli.tools.loading import registry_of
from codesdk.domain.decisions import PermissionMode
from codesdk.errors import Fault
from codesdk.policy import AccessLevel, Bundle, ToolAccess, load_bundle, may_ever_allow, tool_access
from codesdk.policy.evaluation.query import PolicyQuery, QueryPrincipal, evaluate
from codesdk.registry import Argument, Builtin, Registry, SourceCall, Tool


def show_all(
    tools: Path | None, tenant: str | None, policies: Path | None, *, mode: PermissionMode, as_json: bool
) -> None:
    """List tools, one per line, with the bundle's effect for any input.

    Raises:
        PolicyInvalid, ManifestInvalid: with file, line and column.
    """
    printer = Printer(as_json=as_json)
    registry = registry_of(tools, tenant)
    bundle, source = _load_bundle(policies, registry)
    stands = {
        tool.name: tool_access(tool, PolicyQuery(tool=tool.name, mode=mode).subject(), bundle)
        for tool in registry.tools()
    }
    if as_json:
        listed = [{**_summary_json(tool), "policy": _standing_json(stands[tool.name])} for tool in registry.tools()]
        printer.emit({"hash": registry.hash, "bundle": bundle.hash, "mode": mode.value, "tools": listed})
        return
    shown = ResponsiveTable("tool", "class", "version", "calls", "by", "title", folds=("by", "title"))
    for tool in registry.tools():
        stand = stands[tool.name]
        by = Text(", ".join(stand.by))
        shown.add_row(tool.name, tool.classification.value, tool.version, stand.word.value, by, Text(tool.title))
    printer.rows(shown)
    printer.progress(f"calls: in the mode {mode.value}, by {source}.")


def _load_bundle(policies: Path | None, registry: Registry) -> tuple[Bundle, str]:
    """Return the given bundle and its source; without one, the installation's bundle in force, or its files."""
    settings = load_settings(policies=policies)
    if policies is None:
        with suppress(Fault), active_bundles(settings) as running:
            if running is not None and running.shared is not None:
                return running.shared, "the shared rules in force"
    return load_bundle(settings.policies_dir, {tool.name: tool for tool in registry.tools()}), str(
        settings.policies_dir
    )


def _standing_json(stand: ToolAccess) -> dict[str, Any]:
    return {"calls": stand.word.value, "by": list(stand.by)}


def show_one(
    name: str, tools: Path | None, tenant: str | None, policies: Path | None, *, roles: tuple[str, ...], as_json: bool
) -> None:
    """Show a tool's manifest, and policy's decision in each mode.

    Raises:
        UnknownTool: with the nearest name.
        PolicyInvalid, ManifestInvalid: with file, line and column.
    """
    registry = registry_of(tools, tenant)
    tool = registry.resolve(name)
    bundle, _ = _load_bundle(policies, registry)
    printer = Printer(as_json=as_json)
    facts = {**_summary_json(tool), **_detail_json(tool), "policy": _policy_json(tool, bundle, registry, roles)}
    if as_json:
        printer.emit(facts)
        return
    for key in (
        "name",
        "wire_name",
        "title",
        "version",
        "classification",
        "enabled",
        "serial",
        "timeout_s",
        "runs",
        "profile",
        "secrets",
    ):
        printer.out.print(Text.assemble((f"{key:<15} ", "dim"), str(facts[key])), soft_wrap=True)
    printer.out.print(Text.assemble((f"{'schema_hash':<15} ", "dim"), tool.schema_hash), soft_wrap=True)
    printer.out.print(Text(f"\n{tool.description}\n"), soft_wrap=True)
    for key in ("input_schema", "output_schema", "examples"):
        if facts[key]:
            text = json.dumps(facts[key], indent=2, ensure_ascii=False)
            printer.out.print(Text.assemble((f"{key}\n", "dim"), text), soft_wrap=True)
    _print_policy(printer, facts["policy"])


def _summary_json(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "wire_name": tool.wire_name,
        "title": tool.title,
        "version": tool.version,
        "classification": tool.classification.value,
        "enabled": tool.enabled,
        "schema_hash": tool.schema_hash,
    }


def _detail_json(tool: Tool) -> dict[str, Any]:
    return {
        "description": tool.description,
        "serial": tool.serial,
        "timeout_s": tool.timeout_s,
        "runs": command_line(tool),
        "profile": tool.profile,
        "secrets": list(tool.secrets),
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "examples": [example.model_dump(exclude_defaults=True) for example in tool.examples],
    }


def command_line(tool: Tool) -> str:
    """Format the tool's command for people."""
    if isinstance(tool.runs, Builtin):
        return f"built in: {tool.runs.builtin}"
    if isinstance(tool.runs, SourceCall):
        return f"the MCP server {tool.runs.source}: {tool.runs.tool}"
    words = [word if isinstance(word, str) else _placeholder(word) for word in tool.runs.argv]
    return " ".join(words) + (f" < {{{tool.runs.stdin}}}" if tool.runs.stdin else "")


def _placeholder(word: Argument) -> str:
    return f"{word.flag} {{{word.arg}}}" if word.flag else f"{{{word.arg}}}"


def _policy_json(tool: Tool, bundle: Bundle, registry: Registry, roles: tuple[str, ...]) -> dict[str, Any]:
    """Return for each mode whether any input could be allowed, and the decision on each example."""
    known = {each.name: each for each in registry.tools()}

    def verdicts(mode: PermissionMode) -> dict[str, Any]:
        asks = [
            PolicyQuery(tool=tool.name, input=one.input, mode=mode, principal=QueryPrincipal(roles=roles))
            for one in tool.examples
        ]
        subject = PolicyQuery(tool=tool.name, mode=mode, principal=QueryPrincipal(roles=roles)).subject()
        judged = [evaluate(trial, known, bundle) for trial in asks]
        return {
            "allowed": may_ever_allow(tool, subject, bundle).value,
            **_standing_json(tool_access(tool, subject, bundle)),
            "examples": [
                {"effect": one.effect.value, "rules": list(one.rules), "reason": one.reason} for one in judged
            ],
        }

    return {"bundle": bundle.hash, "roles": list(roles), **{mode.value: verdicts(mode) for mode in PermissionMode}}


def _print_policy(printer: Printer, policy: dict[str, Any]) -> None:
    printer.out.print(Text.assemble(("policy", "dim"), f" ({', '.join(policy['roles']) or 'no role'})"))
    for mode in PermissionMode:
        effects = policy[mode.value]
        stand = ToolAccess(AccessLevel(effects["calls"]), tuple(effects["by"]))
        printer.out.print(Text(f"  in the mode {mode.value}: {stand}"), soft_wrap=True)
        for number, verdict in enumerate(effects["examples"], start=1):
            by = ", ".join(verdict["rules"]) or "default"
            printer.out.print(Text(f"    example {number}: {verdict['effect']} by {by}"), soft_wrap=True)
