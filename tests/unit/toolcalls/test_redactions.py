"""A planted secret that a rule redacts is in no event, artifact, result, row or file."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codesdk.domain.decisions import Redaction
from codesdk.domain.redaction import CUT_MARGIN_BYTES, Redactor
from codesdk.sandbox.port import FileWrite
from codesdk.sandbox.profiles.profile import Profile
from codesdk.storage.schema import metadata
from codesdk.toolcalls.records.call_record import Finished
from codesdk.tools.redacted_output import RedactingBuffer
from stage import Room, bundle, read_whole, said

SECRET = b"tok_" + b"q7w8e9r0"
POLICY = r"""
version: 1
enable: [workspace.exec]
rules:
- {id: tokens, effect: allow, obligations: {redactions: [{pattern: 'tok_[a-z0-9]{8}'}]}}
- {id: mails, effect: allow, obligations: {redactions: [{kind: email}]}}
"""
POINTED = """
version: 1
enable: [workspace.exec]
rules:
- {id: hidden, effect: allow, obligations: {redactions: [{pointer: /stdout}]}}
"""


def under(stage, tmp_path, policy=POLICY):
    stage.bundle = bundle(tmp_path / "redacting", policy, stage.registry)
    stage.pipeline = stage.pipeline_with(stage.bundle)
    return stage


@pytest.fixture
def redacting(stage, tmp_path):
    return under(stage, tmp_path)


def run(stage, room, name="workspace.exec", given=None):
    stage.pipeline.submit(name, given or {"command": "x"}, stage.subject)
    claimed = stage.claims().take()
    stage.execution().run(claimed, lambda: room)
    found = stage.find(claimed.stored.identity.tool_call_id)
    assert isinstance(found, Finished)
    return found.result


def everything(stage):
    """All that is stored: each row of each table, each file, and every event once more as a reader gets it."""
    with stage.database.read() as connection:
        rows = [
            str(tuple(row)).encode() for table in metadata.sorted_tables for row in connection.execute(table.select())
        ]
    files = b"".join(file.read_bytes() for file in sorted(stage.root.rglob("*")) if file.is_file())
    return (
        files
        + b"".join(rows)
        + b"".join(event.model_dump_json().encode() for event in read_whole(stage.log, stage.subject.session_id))
    )


def shown(stage, stream):
    deltas = [event.payload for event in stage.events() if event.type == "tool.output.delta"]
    return "".join(delta["delta"] for delta in deltas if delta["stream"] == stream)


def test_a_secret_that_straddles_chunks_and_streams_is_nowhere(redacting):
    play = said(b"a " + SECRET[:5], ("stderr", SECRET), SECRET[5:] + b" b\n", ("stderr", b" jo@mail.example"))
    result = run(redacting, Room(play))
    assert (result.structured["stdout"], result.structured["stderr"]) == ("a [redacted] b\n", "[redacted] [redacted]")
    assert result.text.endswith("[policy took out 3 parts of this result]")
    assert (shown(redacting, "stdout"), shown(redacting, "stderr")) == ("a [redacted] b\n", "[redacted] [redacted]")
    assert SECRET not in everything(redacting)
    assert SECRET.decode() not in result.model_dump_json()


def test_a_long_output_is_clean_in_its_artifact_and_where_the_result_cuts_it(redacting):
    piece = b"x" * 1000 + SECRET
    result = run(redacting, Room(said(*[piece[at : at + 700] for at in range(0, len(piece), 700)] * 40)))
    assert SECRET[:6] not in result.text.encode().replace(b"[redacted]", b"")
    kept = redacting.artifacts.listing(redacting.principal.tenant_id, redacting.subject.session_id)
    (content,) = [redacting.artifacts.read(one) for one in kept if one.name.endswith("stdout.txt")]
    assert (content.count(b"[redacted]"), content.count(b"x")) == (40, 40_000)
    assert SECRET not in everything(redacting)


def test_what_stands_at_a_gap_is_held_back(redacting):
    head = b"h" * (2 * CUT_MARGIN_BYTES) + SECRET[:9]
    result = run(redacting, Room(said(head, 50, SECRET[9:] + b" tail")))
    assert result.structured["stdout"].startswith("h")
    assert "tok_" not in result.model_dump_json()
    assert b"tok_q" not in everything(redacting)
    assert result.stdout.bytes == result.stdout.gap + result.stdout.dropped


def test_a_file_that_is_read_is_clean_where_the_lines_are_cut(redacting):
    room = Room()
    room.files.write((FileWrite(path="a", content=b"one\n-> " + SECRET + b"\nthree\n"),))
    result = run(redacting, room, "workspace.read", {"path": "a", "offset": 2, "limit": 1})
    assert result.structured["content"] == "-> [redacted]\n"
    assert SECRET not in everything(redacting)


def test_a_line_that_is_found_is_clean_before_it_is_cut(redacting):
    line = "x" * 490 + " " + SECRET.decode() + "\n"
    found = {"path": {"text": "a"}, "line_number": 1, "lines": {"text": line}, "absolute_offset": 0}
    room = Room(said(json.dumps({"type": "match", "data": found}).encode() + b"\n"))
    room.files.put("a", line.encode())
    result = run(redacting, room, "workspace.search", {"pattern": "x"})
    assert result.structured["matches"][0]["text"] == ("x" * 490 + " [redacted]")[:500]
    assert "--max-columns-preview" not in room.requests[0].argv
    assert SECRET[:5] not in everything(redacting).replace(b"tok_[", b"")


def test_a_body_that_is_fetched_is_clean_in_the_answer_and_in_the_artifact(redacting):
    hosts = Profile(egress={"rules": [{"host": "a.example", "protocol": "http"}]}, show_output_bytes=256)
    redacting.sql("UPDATE sessions SET profile = :profile", profile=hosts.model_dump_json())
    head = {"url": "http://a.example/", "status": 200, "reason": "OK", "headers": [["x-token", SECRET.decode()]]}
    head |= {"redirects": [], "location": None, "cut": False}
    body = b"y" * 250 + SECRET + b"y" * 50
    room = Room(said(json.dumps(head).encode() + b"\n" + body))
    result = run(redacting, room, "http.fetch", {"url": "http://a.example/"})
    assert result.structured["headers"] == {"x-token": "[redacted]"}
    (kept,) = redacting.artifacts.listing(redacting.principal.tenant_id, redacting.subject.session_id)
    assert redacting.artifacts.read(kept) == b"y" * 250 + b"[redacted]" + b"y" * 50
    assert SECRET not in everything(redacting)
    assert "tok_" not in result.model_dump_json()


def test_a_stream_that_is_pointed_at_is_kept_nowhere(stage, tmp_path):
    under(stage, tmp_path, POINTED)
    result = run(stage, Room(said(b"whatever-it-is " * 10_000)))
    assert result.structured["stdout"] == "[redacted]"
    assert result.artifacts == ()
    assert b"whatever-it-is" not in everything(stage)


def test_the_record_says_that_policy_redacts_and_not_what(redacting):
    run(redacting, Room(said(b"")))
    (told,) = [
        event.payload["obligations"] for event in redacting.events() if event.type == "tool.call.policy_evaluated"
    ]
    assert told == {"redactions": [{"pattern": "[redacted]"}, {"kind": "email"}]}
    ((row,),) = redacting.sql("SELECT obligations FROM tool_calls")
    assert json.loads(row)["redactions"][0] == {"pattern": "tok_[a-z0-9]{8}"}  # for a worker that takes the call up


def test_a_command_that_fails_is_clean_too(redacting):
    result = run(redacting, Room(said(("stderr", b"no: " + SECRET), exit_code=3)))
    assert (result.is_error, result.structured["stderr"]) == (True, "no: [redacted]")
    assert SECRET not in everything(redacting)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([SECRET, b"x", b"\xc3\xa9", b"\n", SECRET[:7]]), max_size=30),
    st.lists(st.integers(0, 300), max_size=20),
)
def test_however_the_output_comes_the_same_clean_output_goes_on(parts, cuts):
    data = b"".join(parts)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [data[start:end] for start, end in pairwise(places)]
    withheld, seen = RedactingBuffer(), []
    result = said(*chunks)(None, withheld.add)
    redactor = Redactor([Redaction(literal=SECRET.decode())])
    counted = withheld.release(result, redactor, lambda chunk: seen.append(chunk.data))
    assert b"".join(seen) == data.replace(SECRET, b"[redacted]")
    assert counted.stdout.bytes == len(b"".join(seen))
    assert (counted.stdout.dropped, redactor.count) == (0, data.count(SECRET))
