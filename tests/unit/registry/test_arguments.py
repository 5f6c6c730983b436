"""Arguments as clients send them."""

from __future__ import annotations

import pytest

from codesdk.registry import InvalidInput
from codesdk.registry.arguments import normalize
from stage import shipped

SCHEMA = {
    "type": "object",
    "required": ["needed"],
    "properties": {
        "needed": {"type": "string"},
        "count": {"type": "integer"},
        "size": {"type": "number"},
        "either": {"type": ["integer", "string"]},
        "maybe": {"type": ["integer", "null"]},
        "choice": {"enum": ["a", None]},
        "free": {},
        "flag": {"type": "boolean"},
        "inside": {"type": "object", "properties": {"count": {"type": "integer"}}},
        "many": {"type": "array", "items": {"type": "integer"}},
    },
}


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"count": None, "flag": None, "inside": None}, {}),
        ({"maybe": None, "choice": None, "free": None}, {"maybe": None, "choice": None, "free": None}),
        ({"needed": None, "unknown": None}, {"needed": None, "unknown": None}),
        ({"count": "12", "size": "1.5", "maybe": "-3"}, {"count": 12, "size": 1.5, "maybe": -3}),
        ({"size": "2"}, {"size": 2}),
        (
            {"inside": {"count": "1", "other": "1"}, "many": ["1", 2]},
            {"inside": {"count": 1, "other": "1"}, "many": [1, 2]},
        ),
        ({"inside": {"count": None}}, {"inside": {}}),
        ({"needed": "12", "either": "12", "free": "12"}, {"needed": "12", "either": "12", "free": "12"}),
    ],
)
def test_null_is_not_given_and_digits_are_a_number_where_the_schema_has_no_other_meaning(given, taken):
    assert normalize(given, SCHEMA) == taken


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "+1", "01", "1e3", "0x1", "1_0", "\u0661", "9" * 16, "1.0", "NaN", "true", "-"]
)
def test_everything_else_stays_as_it_is(text):
    assert normalize({"count": text, "flag": text}, SCHEMA) == {"count": text, "flag": text}


@pytest.mark.parametrize(
    ("tool", "given", "meant"),
    [
        ("workspace.exec", {"cmd": "ls"}, "command"),
        ("workspace.exec", {"command": "ls", "timeout": 5}, "timeout_s"),
        ("workspace.exec", {"command": "ls", "workdir": "src"}, "cwd"),
        ("workspace.read", {"path": "a", "start_line": 5}, "offset"),
        ("workspace.read", {"file_path": "a"}, "path"),
        ("workspace.list", {"dir": "a"}, "path"),
        ("workspace.write", {"path": "a", "contents": "x"}, "content"),
        ("workspace.search", {"pattern": "a", "include": "*.py"}, "glob"),
        ("workspace.search", {"query": "a"}, "pattern"),
        ("workspace.move", {"path": "a", "destination": "b"}, "target"),
        ("workspace.delete", {"path": "a", "force": True}, "recursive"),
    ],
)
def test_the_message_about_an_unknown_argument_names_the_one_that_was_meant(tool, given, meant):
    with pytest.raises(InvalidInput) as refused:
        shipped().resolve(tool).check_input(given)
    assert (
        f"(`{meant}` instead of `{next(name for name in given if name not in ('path', 'command', 'pattern'))}`?)"
        in str(refused.value)
    )
