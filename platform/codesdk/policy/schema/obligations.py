"""Reads obligations from policy files, and refuses profile fields that no rule can limit, with the reason."""

from __future__ import annotations

from typing import Any

from codesdk.documents import SIZE, TIME, Document, DocumentUnreadable
from codesdk.domain.redaction import InvalidPattern, check_pattern

CONTAINER_REASON = "it is fixed when the container starts; set it in the session's profile"
SESSION_REASON = "it applies to the whole session; set it in the session's profile"
UNSUPPORTED_FIELDS = {
    **dict.fromkeys(
        (
            "runtime", "seccomp", "cpus", "swap_bytes", "tmp_bytes", "shm_bytes", "workspace", "workspace_mode",
            "workspace_bytes", "workspace_inodes", "image", "tool_uid", "read_only_root",
        ),
        CONTAINER_REASON,
    ),
    **dict.fromkeys(("name", "background_processes", "pause_after_s", "idle_s", "lifetime_s", "grace_s"), SESSION_REASON),
    "wall_s": "write `timeout_s` next to `sandbox`",
}  # fmt: skip
"""Fields of a profile that an obligation can't limit, and why."""
NO_HOST = "none"
"""Value of `egress` for an empty list of hosts."""


def normalize(document: Document) -> Document:
    """Convert sizes to numbers and single values to lists, so that the model can validate the file.

    Raises:
        DocumentUnreadable: an invalid size, or a field that no rule can limit.
    """
    rules = document.data.get("rules") if isinstance(document.data, dict) else None
    if not isinstance(rules, list):
        return document
    return Document(
        {**document.data, "rules": [_rule(document, number, rule) for number, rule in enumerate(rules)]},
        document.places,
    )


def _rule(document: Document, number: int, rule: Any) -> Any:
    obligations = rule.get("obligations") if isinstance(rule, dict) else None
    if not isinstance(obligations, dict):
        return rule
    if isinstance(obligations.get("rate"), dict):
        obligations = {**obligations, "rate": _rate(document, number, obligations["rate"])}
        rule = {**rule, "obligations": obligations}
    _check_patterns(document, number, obligations.get("redactions"))
    if not isinstance(obligations.get("sandbox"), dict):
        return rule
    where = ("rules", number, "obligations", "sandbox")
    bounds = {name: _bound(document, (*where, name), name, value) for name, value in obligations["sandbox"].items()}
    return {**rule, "obligations": {**obligations, "sandbox": bounds}}


def _rate(document: Document, number: int, rate: dict[str, Any]) -> dict[str, Any]:
    window = rate.get("per")
    if not isinstance(window, str):
        return rate
    try:
        return {**rate, "per": TIME.read(window)}
    except ValueError as error:
        place = document.place(("rules", number, "obligations", "rate", "per"))
        raise DocumentUnreadable(place, f"`per`: {error}") from error


def _check_patterns(document: Document, number: int, redactions: Any) -> None:
    for at, item in enumerate(redactions if isinstance(redactions, list) else []):
        pattern = item.get("pattern") if isinstance(item, dict) else None
        if not isinstance(pattern, str):
            continue
        try:
            check_pattern(pattern)
        except InvalidPattern as error:
            place = document.place(("rules", number, "obligations", "redactions", at, "pattern"))
            raise DocumentUnreadable(place, f"`pattern` is not a valid RE2 regular expression: {error}.") from error


def _bound(document: Document, where: tuple[str | int, ...], name: str, value: Any) -> Any:
    if name in UNSUPPORTED_FIELDS:
        raise DocumentUnreadable(document.place(where), f"No rule can bound `{name}`: {UNSUPPORTED_FIELDS[name]}.")
    if name == "egress" and isinstance(value, str):
        return [] if value == NO_HOST else [value]
    if name.endswith("_bytes") and isinstance(value, str):
        try:
            return SIZE.read(value)
        except ValueError as error:
            raise DocumentUnreadable(document.place(where), f"`{name}`: {error}") from error
    return value


def extend_schema(bounds: dict[str, Any], rate: dict[str, Any]) -> None:
    """Extend the models' JSON Schemas of bounds and rates with the notations that files may use."""
    window = rate["properties"]["per"]
    rate["properties"]["per"] = {"title": window.pop("title"), "anyOf": [window, TIME.schema()]}
    fields = bounds["properties"]
    for name, field in fields.items():
        if name.endswith("_bytes"):
            field["anyOf"].append(SIZE.schema())
    fields["egress"]["anyOf"].append({"type": "string", "description": f"one host, or `{NO_HOST}`"})
