"""JSON by the interpreter's own C scanner and encoder.

The `json` module loads `re` and `enum` for them: a megabyte in every idle sandbox. Where an interpreter has no such
scanner, or another one than we know, `json` itself is used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_SAMPLE = {"a": [1, -2.5, "ä\ud800\n", None, True], "b": {}}


class _Strict:
    """What the scanner wants to know of its decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int

    @staticmethod
    def parse_constant(name: str) -> float:
        """NaN and Infinity are no JSON."""
        raise ValueError("not JSON: " + name)


def _refuse(value: object) -> object:
    raise TypeError("not JSON: " + type(value).__name__)


def _native() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    import _json  # noqa: PLC0415 - see above

    scan = _json.make_scanner(_Strict())  # type: ignore[arg-type]
    encode = _json.make_encoder(None, _refuse, _json.encode_basestring_ascii, None, ":", ",", False, False, False)

    def dump(value: Any) -> bytes:
        return "".join(encode(value, 0)).encode("ascii")

    def load(data: bytes) -> Any:
        text = bytes(data).decode("utf-8").strip(" \t\r\n")
        try:
            value, end = scan(text, 0)
        except StopIteration as error:
            raise ValueError("not JSON") from error
        if end != len(text):
            raise ValueError("not JSON: more than one value")
        return value

    if load(dump(_SAMPLE)) != _SAMPLE:
        raise ValueError("an encoder of another kind")
    return dump, load


def _portable() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    import json  # noqa: PLC0415 - only where the native one cannot be had

    return lambda value: json.dumps(value, separators=(",", ":")).encode("ascii"), json.loads


try:
    dump, load = _native()
except (ImportError, AttributeError, TypeError, ValueError):
    dump, load = _portable()
