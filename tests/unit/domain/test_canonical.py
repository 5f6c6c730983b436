from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codesdk.domain.artifact_refs import ArtifactRef
from codesdk.domain.canonical import NotCanonical, bytes_hash, canonical_json, content_hash

DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(-(2.0**53) + 2, 2.0**53 - 2)  # a larger one reads back as an integer that I-JSON does not have
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A loaded machine takes long for the first values: that is no fact about ours."""
# RFC 8785, appendix B: the bits of a double, and the only way to write it.
DOUBLES = {
    0x0000000000000000: "0",
    0x8000000000000000: "0",
    0x0000000000000001: "5e-324",
    0x8000000000000001: "-5e-324",
    0x7FEFFFFFFFFFFFFF: "1.7976931348623157e+308",
    0xFFEFFFFFFFFFFFFF: "-1.7976931348623157e+308",
    0x4340000000000000: "9007199254740992",
    0xC340000000000000: "-9007199254740992",
    0x4430000000000000: "295147905179352830000",
    0x44B52D02C7E14AF5: "9.999999999999997e+22",
    0x44B52D02C7E14AF6: "1e+23",
    0x44B52D02C7E14AF7: "1.0000000000000001e+23",
    0x444B1AE4D6E2EF4E: "999999999999999700000",
    0x444B1AE4D6E2EF4F: "999999999999999900000",
    0x444B1AE4D6E2EF50: "1e+21",
    0x3EB0C6F7A0B5ED8C: "9.999999999999997e-7",
    0x3EB0C6F7A0B5ED8D: "0.000001",
    0x41B3DE4355555553: "333333333.3333332",
    0x41B3DE4355555554: "333333333.33333325",
    0x41B3DE4355555555: "333333333.3333333",
    0x41B3DE4355555556: "333333333.3333334",
    0x41B3DE4355555557: "333333333.33333343",
    0xBECBF647612F3696: "-0.0000033333333333333333",
    0x43143FF3C1CB0959: "1424953923781206.2",
}
NO_NUMBERS = (0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000)
# RFC 8785, sections 3.2.2 to 3.2.4: one document, and its bytes.
SAMPLE = r"""{
  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}"""
SAMPLE_BYTES = bytes.fromhex(
    "7b226c69746572616c73223a5b6e756c6c2c747275652c66616c73655d2c226e756d62657273223a5b3333333333333333332e333333"
    "333333332c31652b33302c342e352c302e3030322c31652d32375d2c22737472696e67223a22e282ac245c75303030665c6e4127425c"
    "225c5c5c5c5c222f227d"
)


def double(bits: int) -> float:
    return struct.unpack(">d", bits.to_bytes(8, "big"))[0]


ascii_keys = st.text(st.characters(max_codepoint=127))
plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(ascii_keys, inner),
    max_leaves=20,
)


@PATIENT
@given(plain_values)
def test_what_the_quick_way_writes_is_what_the_whole_algorithm_writes(value):
    assert canonical_json(value) == rfc8785.dumps(value)


def test_every_character_of_a_string_has_the_form_of_the_whole_algorithm():
    every = "".join(chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000)
    assert canonical_json({"a": every}) == rfc8785.dumps({"a": every})


def test_keys_that_utf_16_sorts_otherwise_than_code_points_do_are_sorted_as_utf_16():
    assert canonical_json({"\ue000": 1, "\U00010000": 2}) == '{"\U00010000":2,"\ue000":1}'.encode()


@pytest.mark.parametrize(("bits", "text"), DOUBLES.items(), ids=[f"{bits:016x}" for bits in DOUBLES])
def test_every_number_of_appendix_b_has_its_one_form(bits, text):
    assert canonical_json(double(bits)) == text.encode()


@pytest.mark.parametrize("bits", NO_NUMBERS, ids=lambda bits: f"{bits:016x}")
def test_what_appendix_b_calls_an_error_is_refused(bits):
    with pytest.raises(NotCanonical, match="which JSON can't represent"):
        canonical_json(double(bits))


def test_the_sample_of_the_rfc_has_its_bytes():
    assert canonical_json(json.loads(SAMPLE)) == SAMPLE_BYTES


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # RFC 8785, appendix B (numbers) and section 3.2 (strings, order by UTF-16 code units)
        (0.0, "0"),
        (-0.0, "0"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740991, "9007199254740991"),
        (295147905179352830000.0, "295147905179352830000"),
        (1e23, "1e+23"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (333333333.33333329, "333333333.3333333"),
        ([None, True, False], "[null,true,false]"),
        ('\u20ac$\u000f\nA\'B"\\\\"/', '"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        ({"b": 1, "a": {"d": [], "c": {}}}, '{"a":{"c":{},"d":[]},"b":1}'),
        (
            {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7},
            '{"\\r":2,"1":4,"\x80":6,"ö":7,"€":1,"😀":5,"\ufb33":3}',
        ),
    ],
)
def test_the_vectors_of_rfc_8785_hold(value, text):
    assert canonical_json(value) == text.encode()


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        2**53,
        -(2**53),
        "\ud800",
        {"\ud800": 1},
        {1: 2},
        b"x",
        {1},
        object(),
        {"a": [math.nan]},
        DEEP,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(NotCanonical):
        canonical_json(value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": [0, {"b": math.nan}]}, "'/a/1/b' is nan, which JSON can't represent"),
        ({"a": 2**53}, "'/a' is an integer past 2\\*\\*53 - 1; send it as text"),
        ({"a": -(2**53)}, "'/a' is an integer past"),
        (["x", "\ud800"], "'/1' has half of a character"),
        ({"a": {"\udfff": 1}}, "'/a' has a key that is not a string"),
        ({"a": {1: 1}}, "'/a' has a key that is not a string: 1"),
        ({"body": b"x"}, "'/body' is bytes; store them as an artifact and refer to it"),
        ({1}, "it is a set"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_fault_says_what_and_where(value, why):
    with pytest.raises(NotCanonical, match=why):
        canonical_json(value)


def test_the_largest_integers_that_the_rfc_allows_are_kept():
    assert canonical_json([2**53 - 1, -(2**53) + 1]) == b"[9007199254740991,-9007199254740991]"


@PATIENT
@given(json_values)
def test_it_says_the_same_as_json_and_is_stable(value):
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text


@PATIENT
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9)), st.randoms())
def test_the_order_of_keys_does_not_change_the_hash(value, random):
    items = list(value.items())
    random.shuffle(items)
    assert content_hash(dict(items)) == content_hash(value)


def test_the_hash_is_sha256_of_the_bytes():
    assert (
        content_hash({})
        == bytes_hash(b"{}")
        == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    )


def test_a_reference_to_bytes_has_one_hash_wherever_they_lie():
    reference = ArtifactRef(artifact_id="art_1", content_hash=bytes_hash(b"x"), size=1)
    assert content_hash({"file": reference.model_dump(exclude_none=True)}) == content_hash(
        {"file": {"size": 1, "content_hash": bytes_hash(b"x"), "artifact_id": "art_1"}}
    )
