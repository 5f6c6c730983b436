"""Generates `docs/reference/events.md` from the payload models and their docstrings; the template holds the prose."""

from __future__ import annotations

import inspect
import sys
import types
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from codesdk.cli.schema.published_models import Model, closure, field_docs
from codesdk.domain.calls import CallIdentity, DenialCode
from codesdk.domain.events import CONTRACT_VERSION, SCHEMA_VERSION, Event, EventType
from codesdk.domain.payloads import PAYLOADS, CallPayload

TEMPLATE = Path(__file__).with_name("events.md.in")
"""The page with placeholders for the generated parts."""

_WORDS = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null"}


def page() -> str:
    """Return the whole page."""
    places = {
        "schema_version": str(SCHEMA_VERSION),
        "contract_version": CONTRACT_VERSION,
        "envelope": _table(Event),
        "events": "\n\n".join(_groups()),
        "shapes": "\n\n".join(_shape(model) for model in _shapes()),
        "denials": "\n".join(
            ["| code | why |", "|---|---|", *(f"| `{code}` | {_member(code)} |" for code in DenialCode)]
        ),
    }
    text = TEMPLATE.read_text()
    for name, content in places.items():
        text = text.replace(f"{{{{{name}}}}}", content)
    return text


def _groups() -> list[str]:
    shown: list[str] = []
    heading = ""
    for kind, model in PAYLOADS.items():
        about = inspect.getdoc(sys.modules[model.__module__]) or ""
        if about != heading:
            heading = about
            title, _, prose = about.partition("\n")
            shown.append(f"## {title.rstrip('.')}\n\n{prose.strip()}".rstrip())
        shown.append(_event(kind, model))
    return shown


def _event(kind: EventType, model: Model) -> str:
    about = f"### `{kind}`\n{inspect.getdoc(model)}"
    rows = _table(model)
    return f"{about}\n\n{rows}" if rows else about


def _shapes() -> list[Model]:
    inner = closure((CallIdentity, *PAYLOADS.values(), Event))
    return sorted((m for m in inner if m not in {*PAYLOADS.values(), Event}), key=lambda model: model.__name__)


def _shape(model: Model) -> str:
    return f"### {model.__name__}\n{inspect.getdoc(model)}\n\n{_table(model)}"


def _table(model: Model) -> str:
    docs = field_docs(model)
    skipped = CallIdentity.model_fields if issubclass(model, CallPayload) else {}
    rows = [
        f"| `{name}`{'' if _is_required(field) else ' (optional)'} | {_type(field.annotation)} | {_cell(docs.get(name))} |"
        for name, field in model.model_fields.items()
        if name not in skipped
    ]
    return "\n".join(["| key | type | meaning |", "|---|---|---|", *rows]) if rows else ""


def _is_required(field: FieldInfo) -> bool:
    return field.is_required() or get_origin(field.annotation) is Literal  # always sent despite its default


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _type(annotation: Any) -> str:  # noqa: PLR0911 - one line for each kind of type
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, NewType):
        return "id"
    if origin is Annotated:
        return _type(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(each) for each in arguments if each is not type(None)))
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if annotation is EventType:
        return "a type of this page"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    if origin is dict or annotation is dict:
        return "object"
    return "any JSON" if annotation is Any else _WORDS[annotation]


def _member(member: Enum) -> str:
    """Return the docstring below an enum member."""
    lines = inspect.getsource(type(member)).splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip().startswith(f"{member.name} = "))
    return _cell(lines[at + 1].strip().strip('"'))
