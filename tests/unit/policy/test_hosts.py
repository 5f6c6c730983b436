"""The host in an argument; if parsers could disagree, nothing is allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.decisions import Classification, Effect
from codesdk.policy import Call, ExampleTool, PolicyInvalid, decide
from codesdk.policy.faults import Unevaluable
from codesdk.policy.schema.host_patterns import host_of

from .conftest import subject

FETCH = ExampleTool(name="http.fetch", classification=Classification.NETWORK)


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
        ("http://my_host.example/", "my_host.example"),
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
        "http://1.2.3.4./",
        "http://a../",
        "http://a..b/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://-a.example/",
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
        ("https://WWW.EVIL.example.:443/", Effect.DENY),
        ("https://evil.example", Effect.ASK),
        ("https://1.2.3.4.", Effect.DENY),
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


def test_patterns_are_compared_in_their_one_spelling_and_wrong_ones_are_refused_at_load(write_bundle):
    bundle = write_bundle(
        'default: ask\nrules: [{id: a, effect: deny, args: {/url: {host: ["*.ZONE", "BÜCHER.example."]}}}]\n'
    )
    for url in ("https://x.zone/", "https://xn--bcher-kva.example/", "https://bücher.example"):
        assert decide(Call(name="http.fetch", input={"url": url}), FETCH, subject(), bundle).effect is Effect.DENY
    for wrong in ("a.example:443", "https://a.example", "1.2.3.4.", "*.*.example", "0x7f.1"):
        with pytest.raises(PolicyInvalid, match="host"):
            write_bundle(f"rules: [{{id: a, effect: deny, args: {{/url: {{host: '{wrong}'}}}}}}]\n")
