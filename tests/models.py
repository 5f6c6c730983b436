"""Hypothesis strategies for all our records, from their annotations."""

from __future__ import annotations

import types
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

import annotated_types
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e9, 1e9) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def records(model: type[BaseModel]) -> st.SearchStrategy[BaseModel]:
    """Any record of that model that its own checks let pass."""
    fields = {name: _field(info) for name, info in model.model_fields.items()}

    def build(values: dict[str, Any]) -> BaseModel | None:
        try:
            return model.model_validate(values)
        except ValidationError:
            return None  # the model refuses the combination, as it should

    return st.fixed_dictionaries(fields).map(build).filter(lambda record: record is not None)


def _field(info: FieldInfo) -> st.SearchStrategy[Any]:
    return _bounded(info.annotation, info.metadata)


def _bounded(annotation: Any, metadata: list[Any] | tuple[Any, ...]) -> st.SearchStrategy[Any]:
    low = next((m.ge for m in metadata if isinstance(m, annotated_types.Ge)), None)
    high = next((m.le for m in metadata if isinstance(m, annotated_types.Le)), None)
    least = next((m.min_length for m in metadata if isinstance(m, annotated_types.MinLen)), 0)
    above = next((m.gt for m in metadata if isinstance(m, annotated_types.Gt)), None)
    return _of(annotation, low=low if low is not None else above, high=high, least=least)


def _of(annotation: Any, *, low: float | None = None, high: float | None = None, least: int = 0) -> st.SearchStrategy:  # noqa: PLR0911, PLR0912, C901
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, NewType):
        return _of(annotation.__supertype__)
    if origin is Annotated:
        return _bounded(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return st.one_of([_of(each, low=low, high=high) for each in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(_of(arguments[0]), min_size=least, max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(words, _of(arguments[1]), max_size=3)
    if annotation is Any:
        return json_values
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return st.integers(int(low) if low is not None else -(2**53) + 1, int(high) if high is not None else 2**53 - 1)
    if annotation is float:
        return st.floats(low if low is not None else -1e12, high if high is not None else 1e12)
    if annotation is str:
        return words
    if annotation is type(None):
        return st.none()
    if issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    if issubclass(annotation, BaseModel):
        return records(annotation)
    raise TypeError(f"no strategy for {annotation}")
