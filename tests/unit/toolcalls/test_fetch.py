"""http.fetch if the sandbox's python3 is hostile or missing."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from codesdk.registry import InvalidOutput, Registry
from codesdk.sandbox.egress.rules import EgressRules
from codesdk.sandbox.port import ExecResult, ExitKind
from codesdk.sandbox.profiles.profile import Profile
from stage import REPOSITORY, Room, said
from tool_bench import bench, use

TOOL = Registry.load(REPOSITORY / "tool-registry").resolve("http.fetch")
HOSTS = Profile(
    egress=EgressRules.model_validate(
        {"rules": [{"host": "*.web.example", "protocol": "http"}, {"host": "b.example", "protocol": "http"}]}
    )
)


def fetch(room, url="http://a.web.example/", **more):
    return use(TOOL, {"url": url, **more}, bench(room, HOSTS))


def test_the_exec_is_given_the_one_host_that_was_asked_for():
    for url, host in (("http://A.web.example./x", "a.web.example"), ("http://b.example", "b.example")):
        room = Room(said(b""))
        fetch(room, url)
        assert [rule.host for rule in room.requests[0].egress.rules] == [host]


heads = st.fixed_dictionaries(
    {},
    optional={
        "url": st.text(max_size=5),
        "status": st.integers() | st.text(max_size=3),
        "reason": st.none() | st.text(max_size=3),
        "headers": st.lists(st.lists(st.text(max_size=3), max_size=3), max_size=2) | st.integers(),
        "redirects": st.lists(st.text(max_size=2), max_size=2) | st.none(),
        "location": st.none() | st.text(max_size=3) | st.integers(),
        "cut": st.booleans() | st.none(),
        "error": st.text(max_size=3) | st.integers(),
        "message": st.text(max_size=3),
    },
)


@given(
    st.binary(max_size=60)
    | st.builds(lambda head, body: json.dumps(head).encode() + b"\n" + body, heads, st.binary(max_size=20))
)
def test_whatever_the_sandbox_says_gives_an_answer_of_the_schema_or_a_typed_error(said_bytes):
    try:
        result = fetch(Room(said(said_bytes)))
    except InvalidOutput as fault:
        assert fault.code == "INVALID_TOOL_OUTPUT"  # noqa: PT017 (one of two right answers)
    else:
        assert result.code or result.structured


def test_an_image_without_python_is_said():
    room = Room(lambda _request, _on_output: ExecResult(kind=ExitKind.SPAWN_FAILED, error="not found"))
    assert fetch(room).code == "NO_PYTHON"


def test_a_program_that_dies_says_its_last_line():
    result = fetch(Room(said(("stderr", b"Traceback\nImportError: no ssl"), exit_code=1)))
    assert (result.code, "ImportError: no ssl" in result.text) == ("FETCH_FAILED", True)


def test_a_body_that_was_cut_inside_a_character_is_text_all_the_same():
    head = {"url": "http://a.web.example/", "status": 200, "reason": "OK", "headers": [], "redirects": []}
    head |= {"location": None, "cut": True}
    result = fetch(Room(said(json.dumps(head).encode() + b"\n" + "caf\u00e9".encode()[:-1])), max_bytes=4)
    assert (result.structured["body"], result.structured["truncated"]) == ("caf", True)
