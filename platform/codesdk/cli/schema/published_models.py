"""Lists the published models and reads their fields' docstrings."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from typing import Annotated, Any, NewType, Union, get_args, get_origin

from pydantic import BaseModel

from codesdk.domain.content import TranscriptMessage
from codesdk.domain.events import Event
from codesdk.domain.payloads import PAYLOADS
from codesdk.domain.records import Artifact, Session, Task, ToolCallRecord
from codesdk.domain.runtime_input import ImplicitSources, RuntimeInput
from codesdk.domain.runtimes import (
    AuthStatus,
    CreateSessionInput,
    LoginHelp,
    ResumedSession,
    RuntimeCapabilities,
    RuntimeEnv,
    RuntimeSessionHandle,
    TaskInput,
)
from codesdk.domain.structured_errors import StructuredError

Model = type[BaseModel]

PUBLISHED: tuple[Model, ...] = (
    Event,
    *PAYLOADS.values(),
    Session,
    Task,
    ToolCallRecord,
    Artifact,
    TranscriptMessage,
    StructuredError,
    RuntimeCapabilities,
    AuthStatus,
    LoginHelp,
    RuntimeEnv,
    CreateSessionInput,
    RuntimeSessionHandle,
    ResumedSession,
    TaskInput,
    RuntimeInput,
    ImplicitSources,
)
"""In the order of the schema; models that their fields use are included."""


def closure(roots: tuple[Model, ...]) -> list[Model]:
    """Return the models and all models that they contain, once each, in order of discovery."""
    found: dict[Model, None] = {}

    def add(model: Model) -> None:
        if model not in found:
            found[model] = None
            for field in model.model_fields.values():
                for inner in models_in(field.annotation):
                    add(inner)

    for root in roots:
        add(root)
    return list(found)


def models_in(annotation: Any) -> Iterator[Model]:
    """Yield the models in an annotation."""
    if isinstance(annotation, NewType):
        return
    if get_origin(annotation) in (Union, types.UnionType, tuple, dict, Annotated):
        for argument in get_args(annotation):
            yield from models_in(argument)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation


def field_docs(model: Model) -> dict[str, str]:
    """Return each field's docstring, including inherited fields.

    Python doesn't keep them, so this parses the source.
    """
    docs: dict[str, str] = {}
    for parent in reversed(model.__mro__):
        if issubclass(parent, BaseModel) and parent is not BaseModel:
            docs |= _own_docs(parent)
    return docs


def _own_docs(model: Model) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False) if isinstance(body, ast.ClassDef) else ():
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                found[name] = inspect.cleandoc(doc)
    return found
