"""Which host an argument names; where that is disputed, nothing is allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.decisions import Classification, Effect
from codesdk.policy import Call, NamedTool, decide
from codesdk.policy.faults import Unevaluable
from codesdk.policy.hosts import host_of

from .conftest import subject

FETCH = NamedTool(name="http.fetch", classification=Classification.NETWORK)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("https://Example.COM:8443/a?b#c", "example.com"),
        ("example.com", "example.com"),
        ("example.com:80", "example.com"),
        ("https://example.com./", "example.com"),
        ("https://bücher.example/", "xn--bcher-kva.example"),
        ("https://[::1]:80/", "::1"),
        ("https://[0:0::1]/", "::1"),
        ("http://127.0.0.1/", "127.0.0.1"),
    ],
)
def test_one_host_has_one_spelling(text, host):
    assert host_of(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://good.example@evil.example/",
        "https://evil.example\\@good.example/",
        "https://good.example\n.evil.example/",
        "https:///path",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://example.com:99999/",
        "http://[::1/",
        "http://exa mple.com/",
        "http://ex%61mple.com/",
    ],
)
def test_a_host_that_readers_may_read_differently_is_none(text):
    with pytest.raises(Unevaluable):
        host_of(text)


@pytest.fixture
def fetching(write_bundle):
    return write_bundle(
        """
default: ask
rules:
- {id: ours, effect: allow, args: {/url: {host: ["api.example", "*.docs.example"]}}}
- {id: theirs, effect: deny, args: {/url: {host: "*.evil.example"}}}
"""
    )


@pytest.mark.parametrize(
    ("url", "effect"),
    [
        ("https://api.example/x", Effect.ALLOW),
        ("https://a.b.docs.example", Effect.ALLOW),
        ("https://docs.example", Effect.ASK),
        ("https://xdocs.example", Effect.ASK),
        ("https://www.evil.example", Effect.DENY),
        ("https://api.example@www.evil.example", Effect.DENY),
        ("https://other.example", Effect.ASK),
    ],
)
def test_a_rule_about_hosts_decides_by_the_host(fetching, url, effect):
    assert decide(Call(name="http.fetch", input={"url": url}), FETCH, subject(), fetching).effect is effect


@given(st.text())
def test_any_text_names_a_host_or_none(text):
    try:
        assert host_of(text)
    except Unevaluable:
        return
