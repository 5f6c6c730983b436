from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.webhooks import SealBroken, SecretCipher

SEAL = SecretCipher(lambda: b"k" * 32)


@given(st.text(max_size=300))
def test_what_is_sealed_opens_again(secret):
    assert SEAL.open(SEAL.close(secret, "target:whk_1"), "target:whk_1") == secret


def test_the_same_secret_never_looks_the_same():
    assert SEAL.close("secret", "p") != SEAL.close("secret", "p")
    assert "secret" not in SEAL.close("secret", "p")


@pytest.mark.parametrize("how", ["other key", "other purpose", "changed", "cut", "garbage", "empty"])
def test_what_is_not_ours_does_not_open_and_the_fault_does_not_say_it(how):
    sealed = SEAL.close("topsecret", "target:whk_1")
    broken = {"changed": sealed[:-6] + "AAAA==", "cut": sealed[:20], "garbage": "s1.!!!", "empty": ""}.get(how, sealed)
    seal = SecretCipher(lambda: b"x" * 32) if how == "other key" else SEAL
    with pytest.raises(SealBroken, match="CODESDK_SEALING_KEY") as caught:
        seal.open(broken, "target:whk_2" if how == "other purpose" else "target:whk_1")
    assert "topsecret" not in str(caught.value)


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_only_the_same_facts_have_the_same_mark(one, other):
    assert (SEAL.mark("p", *one) == SEAL.mark("p", *other)) == (one == other)


def test_a_mark_of_one_purpose_is_none_of_another():
    assert SEAL.mark("p", "a") != SEAL.mark("q", "a")
