"""Names use the field's terms: docs/reference/glossary.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "platform" / "codesdk"
PRIVATE_VOCABULARY = frozenset(
    [
        "bell",
        "bench",
        "bystander",
        "carrier",
        "courier",
        "descent",
        "desk",
        "doubt",
        "errand",
        "eyes",
        "farewell",
        "followers",
        "guest",
        "guests",
        "halting",
        "heard",
        "heart",
        "housing",
        "journey",
        "mishaps",
        "neighbour",
        "nursery",
        "office",
        "owed",
        "parcel",
        "patience",
        "photographer",
        "porter",
        "pulse",
        "rehearsal",
        "residents",
        "rooms",
        "roster",
        "shelf",
        "shepherd",
        "strays",
        "succession",
        "tallies",
        "tally",
        "tidying",
        "unasked",
    ]
)
"""Words that the code once used for things that have a standard term."""
WIRE_NAMES: frozenset[str] = frozenset()
"""Names that are stored or sent, so that renaming them would break data."""


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def named(tree: ast.Module) -> set[str]:
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = {node.name for node in ast.walk(tree) if isinstance(node, definitions)}
    return found | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def test_no_module_class_function_or_parameter_has_a_private_word() -> None:
    offenders = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if "versions" in path.parts:
            continue  # migrations are history
        place = path.relative_to(PACKAGE).as_posix()
        names = {path.stem} | named(ast.parse(path.read_text("utf-8")))
        offenders += [f"{place}: {name}" for name in sorted(names - WIRE_NAMES) if words(name) & PRIVATE_VOCABULARY]
    assert not offenders, "\n".join(offenders)
