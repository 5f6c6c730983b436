"""Minifies Python source: removes docstrings, comments, annotations and type-checking imports.

A sandbox holds the runner's source several times in memory (argv, interpreter, compiled), so a kilobyte of text costs
ten. Statements keep their line numbers, so tracebacks stay valid.
"""

from __future__ import annotations

import ast
import io
import threading
import tokenize
from collections.abc import Iterator

_ONE_AT_A_TIME = threading.Lock()
"""CPython before 3.12 counts how deep it builds a tree in one place for all threads (python/cpython issue 106905).

Where a collection of garbage lets another thread begin a tree meanwhile, one of the two ends with a SystemError.
"""


def parse_module(source: str) -> ast.Module:
    """Parse a module; thread-safe.

    Raises:
        SyntaxError: it isn't valid Python.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(source)


Place = tuple[int, int]
"""Line, from 1, and byte offset in it."""
Cut = tuple[Place, Place, bytes]
"""Start, end, replacement."""


def minify(source: str) -> str:
    """Minify a module. It must not read its annotations at run time."""
    lines = source.encode().splitlines(keepends=True)
    for start, end, instead in sorted(
        _outermost([*_cuts(parse_module(source), lines), *_comments(source)]), reverse=True
    ):
        first, last = lines[start[0] - 1], lines[end[0] - 1]
        kept = first[: start[1]] + instead + b"\n" * (end[0] - start[0]) + last[end[1] :]
        lines[start[0] - 1 : end[0]] = kept.splitlines(keepends=True)
    return b"".join(line.rstrip() + b"\n" for line in lines).decode()


def _outermost(cuts: list[Cut]) -> Iterator[Cut]:
    reached: Place = (0, 0)
    for cut in sorted(cuts, key=lambda cut: (cut[0], (-cut[1][0], -cut[1][1]))):
        if cut[0] >= reached:
            reached = cut[1]
            yield cut


def _comments(source: str) -> Iterator[Cut]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type is tokenize.COMMENT:
            column = len(token.line[: token.start[1]].encode())
            yield (token.start[0], column), (token.end[0], column + len(token.string.encode())), b""


def _cuts(tree: ast.Module, lines: list[bytes]) -> Iterator[Cut]:
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                yield _start(node), _end(node), b'""'  # its body may hold nothing else
            case ast.ImportFrom(module="__future__"):
                yield _start(node), _end(node), b""  # it is about annotations, and a module of its own
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body):
                yield _start(body[0]), _end(body[-1]), b"pass"
            case ast.arg(annotation=ast.expr() as annotation):
                yield (node.lineno, node.col_offset + len(node.arg.encode())), _end(annotation), b""
            case ast.FunctionDef(returns=ast.expr() as returns):
                line, column = _start(returns)
                yield (line, lines[line - 1].rindex(b"->", 0, column)), _end(returns), b""
            case ast.AnnAssign(value=None):
                yield _start(node), _end(node), b"pass"
            case ast.AnnAssign():
                yield _end(node.target), _end(node.annotation), b""
            case _:
                pass


def _start(node: ast.stmt | ast.expr) -> Place:
    return node.lineno, node.col_offset


def _end(node: ast.stmt | ast.expr) -> Place:
    assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: S101, PT018 - parsed from text
    return node.end_lineno, node.end_col_offset
