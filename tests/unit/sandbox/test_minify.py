from __future__ import annotations

import ast

import pytest

from codesdk.sandbox.packaging.bundle import MODULES, source
from codesdk.sandbox.packaging.minify import minify

SOURCES = {name: source(name) for name in MODULES}


def bones(source: str) -> str:
    """What a program does: its syntax tree without what `minify` takes away, each statement with its line."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
        for name in ("body", "orelse", "finalbody"):
            found = getattr(node, name, None)
            if isinstance(found, list):
                setattr(node, name, [plain(item) for item in found if not is_idle(item)])
    lines = [item.lineno for item in ast.walk(tree) if isinstance(item, ast.stmt)]
    return f"{lines} {ast.dump(tree)}"


def plain(node: ast.stmt) -> ast.stmt:
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return ast.copy_location(ast.Assign([node.target], node.value), node)
    return node


def is_idle(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Constant(value=str())) | ast.Pass() | ast.ImportFrom(module="__future__"):
            return True
        case ast.AnnAssign(value=None):
            return True
    return False


@pytest.mark.parametrize("name", MODULES)
def test_a_slim_module_does_the_same_on_the_same_lines(name):
    assert bones(minify(SOURCES[name])) == bones(SOURCES[name])


@pytest.mark.parametrize("name", MODULES)
def test_a_slim_module_is_python_3_9_and_has_no_words_for_readers(name):
    found = minify(SOURCES[name])
    tree = ast.parse(found, feature_version=(3, 9))
    assert "# " not in "".join(line for line in found.splitlines(keepends=True) if '"' not in line)
    assert not any(ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    assert not any(node.annotation or False for node in ast.walk(tree) if isinstance(node, ast.arg))


def test_columns_are_bytes_and_nested_cuts_are_made_once():
    source = 'def f(é: "ü" = "#ä", *args: int) -> "dict[str, int]":  # ö\n    """Ä\n\n    é"""\n    x: int\n    y: str = "#é"  # é\n'
    assert minify(source) == 'def f(é = "#ä", *args) :\n    ""\n\n\n    pass\n    y = "#é"\n'


def test_names_that_only_checkers_want_are_not_imported():
    assert minify("if TYPE_CHECKING:\n    import a\n    b = 1\nelse:\n    b = 2\n") == (
        "if TYPE_CHECKING:\n    pass\n\nelse:\n    b = 2\n"
    )
