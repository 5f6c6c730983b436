from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.network.hostnames import (
    InvalidHostname,
    canonical_host,
    covers,
    drop_covered,
    intersect,
    intersect_all,
    parse_address,
    url_host,
)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("packages.example", "packages.example"),
        ("Packages.EXAMPLE", "packages.example"),
        ("packages.example.", "packages.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("bücher。example", "xn--bcher-kva.example"),  # the ideographic full stop is a dot to resolvers
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("192.0.2.7", "192.0.2.7"),
        ("[2001:DB8:0::1]", "2001:db8::1"),
        ("_dmarc.example", "_dmarc.example"),
        ("localhost", "localhost"),
    ],
)
def test_a_name_has_one_spelling(spelling, name):
    assert canonical_host(spelling) == name


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "a..b", ".a", "a..", "-a.example", "a-.example", "a b.example", "a/b", "a@b", "a%00b", "a\nb", "a\0b",
        "x" * 64 + ".example", ".".join(["x" * 60] * 5), "xn--a.example", "[::1", "::1]", "[fe80::1%eth0]", "fe80::1%1",
        "*.example.org", "a.example:443", "[127.0.0.1]",
        # Spellings of addresses that resolvers and C libraries read, each in its own way.
        "2130706433", "0x7f000001", "0x7f.0.0.1", "017700000001", "0177.0.0.1", "127.1", "127.0.1", "127.0.0.1.1",
        "127.0.0.256", "127.0.0.01", "1.2.3.0x4", "0x", "\uff11\uff12\uff17.0.0.1.5", "256", "1.1.1.1.in-addr.0",
    ],
)  # fmt: skip
def test_what_is_no_name_or_an_ambiguous_one_is_refused(text):
    with pytest.raises(InvalidHostname):
        canonical_host(text)


def test_full_width_digits_are_the_address_that_they_become():
    assert canonical_host("\uff11\uff12\uff17.0.0.1") == "127.0.0.1"


@given(st.text(max_size=80))
def test_any_text_is_refused_or_has_a_spelling_that_stays(text):
    try:
        name = canonical_host(text)
    except InvalidHostname:
        return
    assert canonical_host(name) == name
    assert name.isascii()
    if parse_address(name) is not None:
        assert canonical_host(url_host(name)) == name


NAMES = ("a.example", "b.a.example", "c.b.a.example", "xa.example", "192.0.2.7")
PATTERNS = st.sampled_from((*NAMES, "*.a.example", "*.b.a.example", "*.c.b.a.example", "*.xa.example"))


@given(PATTERNS, PATTERNS, st.sampled_from(NAMES))
def test_what_two_patterns_have_in_common_is_what_both_stand_for(one, other, name):
    found = intersect(one, other)
    assert (found is not None and covers(found, name)) == (covers(one, name) and covers(other, name))


@given(st.lists(PATTERNS), st.lists(PATTERNS), st.sampled_from(NAMES))
def test_of_two_lists_is_left_what_is_in_both(one, other, name):
    def named(patterns):
        return any(covers(pattern, name) for pattern in patterns)

    assert named(intersect_all(one, other)) == (named(one) and named(other))
    assert intersect_all(one, other) == intersect_all(other, one)
    assert intersect_all(one, one) == drop_covered(one)
