from __future__ import annotations

import contextlib
import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.events import SCHEMA_VERSION, EventUnreadable
from codesdk.domain.upcasting import UPCASTERS, SchemaTooNew, read_event, upcast

STORED = {
    "schema_version": 1,
    "seq": 7,
    "time": "2026-01-01T00:00:00.000Z",
    "type": "tool.output.delta",
    "trace": {"session_id": "ses_1"},
    "runtime": {"name": "mcp-client"},
    "payload": {"text": "a", "stream": "stdout"},
}


def rename(event):
    payload = dict(event["payload"])
    payload["delta"] = payload.pop("text")
    return {**event, "payload": payload}


def count(event):
    return {**event, "payload": {**event["payload"], "bytes": len(event["payload"]["delta"])}}


def test_there_is_a_way_up_from_every_version():
    assert set(UPCASTERS) == set(range(1, SCHEMA_VERSION))


def test_an_old_event_goes_up_step_by_step():
    risen = upcast(STORED, 3, {1: rename, 2: count})
    assert risen["schema_version"] == 3
    assert risen["payload"] == {"stream": "stdout", "delta": "a", "bytes": 1}


def test_a_middle_version_starts_in_the_middle():
    risen = upcast({**STORED, "schema_version": 2, "payload": {"delta": "abc"}}, 3, {1: rename, 2: count})
    assert risen["payload"] == {"delta": "abc", "bytes": 3}


def test_what_is_stored_is_left_as_it_is():
    before = copy.deepcopy(STORED)
    upcast(STORED, 3, {1: rename, 2: count})
    assert before == STORED


def test_a_step_that_is_missing_is_a_fault():
    with pytest.raises(EventUnreadable, match="can't be upgraded"):
        upcast(STORED, 3, {1: rename})


def test_an_event_of_a_newer_schema_is_a_fault_that_says_what_to_do():
    with pytest.raises(
        SchemaTooNew, match=rf"Event 7 has schema version 99; this CodeSDK reads up to {SCHEMA_VERSION}"
    ) as caught:
        read_event({**STORED, "schema_version": 99, "payload": "another shape altogether"})
    assert "with the version of CodeSDK that wrote it" in caught.value.advice()


@pytest.mark.parametrize("version", [None, 0, -1, "1", 1.0, True])
def test_a_version_that_is_none_is_a_fault(version):
    with pytest.raises(EventUnreadable, match="no schema version"):
        read_event({**STORED, "schema_version": version})


def test_keys_of_the_envelope_that_are_not_known_are_left_out():
    read = read_event({**STORED, "later": 1, "trace": {"session_id": "ses_1", "later": 2}})
    assert read == read_event(STORED)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_whatever_stands_in_the_log_is_read_or_is_a_fault_of_ours(junk):
    for place in ("seq", "time", "type", "trace", "runtime", "payload", "schema_version"):
        with contextlib.suppress(EventUnreadable, SchemaTooNew):
            assert read_event({**STORED, place: junk}).payload is not None
