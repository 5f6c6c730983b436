"""JSON Schema 2020-12: compiled once, with errors that describe what was expected and never repeat the value."""

from __future__ import annotations

from typing import Any, NamedTuple

import jsonschema_rs

from codesdk.registry.arguments import meant
from codesdk.registry.schema_safety import check_schema, compile_validator

MAX_WORK = 50_000_000
"""Values of an input times values of its schema: about a second. A schema of many alternatives checks each value often."""
MAX_EXPLAINED = 1_000_000
"""Values and characters times values of the schema up to which all mismatches are compared: a fifth of a second."""
MAX_LOCATED = 400_000_000
"""Likewise, up to which the first mismatch is explained. Each alternative that doesn't match repeats the value."""


class SchemaMismatch(NamedTuple):
    """The first position where a value does not match."""

    pointer: str
    expected: str


class CompiledSchema:
    """A compiled schema. Regular expressions run in linear time; references can't leave the schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile the schema.

        Raises:
            SchemaRefused: it is not a valid 2020-12 schema, or refers outside itself.
        """
        self._schema = schema
        self._size = check_schema(schema)
        self._validator = compile_validator(schema)

    def mismatch(self, value: Any) -> SchemaMismatch | None:
        """Return the mismatch deepest in the value, of a large value the first one; None if the value matches."""
        if _size(value, MAX_WORK // self._size, characters=False) > MAX_WORK // self._size:
            return SchemaMismatch("", f"fewer values: this schema can check {MAX_WORK // self._size} at once")
        if self._validator.is_valid(value):
            return None
        work = self._size * _size(value, MAX_LOCATED // self._size, characters=True)
        if work > MAX_LOCATED:
            return SchemaMismatch("", "a value that matches the schema; this one is too large to say where it differs")
        errors = [self._first_error(value)] if work > MAX_EXPLAINED else list(self._validator.iter_errors(value))
        # A wrong type at a leaf is more helpful than a failed oneOf at the root.
        error = max(errors, key=lambda one: (len(one.instance_path), _specificity(one)))
        return SchemaMismatch(_pointer(error.instance_path), self._expected(error))

    def _first_error(self, value: Any) -> jsonschema_rs.ValidationError:
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return error
        raise AssertionError("the value was found not to match")

    def _expected(self, error: jsonschema_rs.ValidationError) -> str:
        kind = error.kind.as_dict()
        keyword = str(error.schema_path[-1]) if error.schema_path else ""
        keyword = next((str(step) for step in reversed(error.schema_path) if isinstance(step, str)), keyword)
        owner = self._value_at(error.schema_path[:-1]) if error.schema_path else {}
        rule = owner.get(keyword) if isinstance(owner, dict) else None
        match keyword:
            case "additionalProperties" | "unevaluatedProperties":
                known = sorted(owner.get("properties", {})) if isinstance(owner, dict) else []
                unexpected = [str(name) for name in kind.get("unexpected", [])]
                near = meant(unexpected[0], known) if unexpected else None
                hint = (
                    f" (`{near}` instead of `{unexpected[0]}`?)"
                    if near
                    else f", not `{unexpected[0][:60]}`"
                    if unexpected
                    else ""
                )
                return f"only {_names(known)}{hint}"
            case "required":
                return f"`{kind.get('property')}` to be there"
            case "oneOf" | "anyOf":
                names = [
                    alternative["required"][0]
                    for alternative in rule or []
                    if isinstance(alternative, dict) and alternative.get("required")
                ]
                count = "exactly" if keyword == "oneOf" else "at least"
                return f"{count} one of {_names(names)}" if names else f"{count} one of {len(rule or [])} alternatives"
            case "type":
                return " or ".join(rule) if isinstance(rule, list) else f"a value of type {rule}"
            case "enum":
                return f"one of {_names([str(option) for option in rule or []])}"
            case _:
                return _LIMITS.get(keyword, keyword + " {}").format(rule)

    def _value_at(self, path: list[str | int]) -> Any:
        node: Any = self._schema
        for step in path:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                return {}
        return node


_LIMITS = {
    "maxLength": "at most {} characters",
    "minLength": "at least {} characters",
    "maximum": "at most {}",
    "minimum": "at least {}",
    "exclusiveMaximum": "less than {}",
    "exclusiveMinimum": "more than {}",
    "maxItems": "at most {} items",
    "minItems": "at least {} items",
    "pattern": "text that matches {}",
    "const": "{}",
}


def _size(value: Any, most: int, *, characters: bool) -> int:
    """The number of values in a value, with their characters if wanted; counts until there are more than `most`."""
    count = 0
    stack = [value]
    while stack and count <= most:
        item = stack.pop()
        count += 1
        if isinstance(item, dict):
            stack += item.values()
            count += sum(map(len, item)) if characters else 0
        elif isinstance(item, list):
            if len(item) > most:
                return len(item)
            stack += item
        elif characters and isinstance(item, str):
            count += len(item)
    return count


def _specificity(error: jsonschema_rs.ValidationError) -> int:
    last = str(error.schema_path[-1]) if error.schema_path else ""
    return {"additionalProperties": 3, "type": 2, "required": 1}.get(last, 0)


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "no keys"


def _pointer(path: list[str | int]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
