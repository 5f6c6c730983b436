from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@given(json_values)
def test_it_says_the_same_as_json_and_is_stable(value):
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text


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
