from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from codesdk.domain.decisions import REDACTED, UNREDACTED, Obligations, RedactedKind, Redaction, combine_obligations
from codesdk.domain.redaction import CUT_MARGIN_BYTES, MAX_MATCHES, MAX_VALUES, InvalidPattern, Redactor, check_pattern
from codesdk.domain.tool_results import ToolResult

TOKEN = Redaction(pattern=r"tok_[a-z0-9]{8}")
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\ndef\n-----END RSA PRIVATE KEY-----"


def clean(text, *redactions, is_cut=False):
    return Redactor(redactions).clean_text(text, is_cut=is_cut)


@pytest.mark.parametrize(
    ("redaction", "text", "left"),
    [
        (TOKEN, "a tok_abcd1234 b", "a [redacted] b"),
        (Redaction(literal="a.b"), "a.b axb", "[redacted] axb"),
        (Redaction(kind="email"), "to jo.doe+x@mail.example.org!", "to [redacted]!"),
        (Redaction(kind="credit-card"), "4111 1111 1111 1111, 3782-822463-10005", "[redacted], [redacted]"),
        (Redaction(kind="credit-card"), "1764316800123456789 4111", "1764316800123456789 4111"),
        (Redaction(kind="aws-key"), "id AKIAIOSFODNN7EXAMPLE.", "id [redacted]."),
        (Redaction(kind="aws-key"), 'aws_secret_access_key = "wJalrXUtnFEMI/K7MDENG"', '[redacted]"'),
        (Redaction(kind="aws-key"), '{"SecretAccessKey": "wJalrXUtnFEMI/K7MD"}', '{"[redacted]"}'),
        (Redaction(kind="aws-key"), '{"SecretAccessKey": 1}', '{"SecretAccessKey": 1}'),
        (Redaction(kind="private-key"), f"x\n{KEY}\ny", "x\n[redacted]\n\n\n\ny"),
        (Redaction(kind="private-key"), f"x {KEY[:40]}", "x [redacted]\n\n"),
        (Redaction(pattern="né+"), "é né né\ufffd", "é [redacted] [redacted]\ufffd"),
    ],
)
def test_what_is_named_is_replaced_and_line_numbers_stay(redaction, text, left):
    assert clean(text, redaction) == left


def test_every_kind_has_a_pattern_that_can_be_used():
    for kind in RedactedKind:
        assert clean("nothing here", Redaction(kind=kind)) == "nothing here"


def test_matches_that_overlap_are_one_and_no_end_of_one_is_left():
    redactor = Redactor([Redaction(literal="abcd"), Redaction(literal="cdef"), Redaction(literal="ef")])
    assert (redactor.clean(b"xabcdefy efz"), redactor.count) == (b"x[redacted]y [redacted]z", 2)


def test_bytes_that_are_no_text_stay_as_they_are():
    assert Redactor([TOKEN]).clean(b"\xff\x00tok_abcd1234\xfe") == b"\xff\x00[redacted]\xfe"


@given(st.integers(0, 12), st.integers(0, 3 * CUT_MARGIN_BYTES))
def test_no_beginning_of_a_secret_is_left_at_a_cut(length, before):
    secret = "S3CRET-VALUE"
    found = clean("x" * before + secret[:length], Redaction(literal=secret), is_cut=True)
    assert secret[:1] not in found.removesuffix("[redacted]")


@given(st.lists(st.sampled_from(["tok_abcd1234", "x", "é", "\n", "tok_"])))
def test_nothing_that_matches_is_left_and_all_else_is(parts):
    assert "tok_abcd1234" not in clean("".join(parts), TOKEN)
    rest = [part for part in parts if part != "tok_abcd1234"]
    assert clean("".join(rest), Redaction(literal="never there")) == "".join(rest)


def test_of_more_matches_than_are_told_apart_all_that_is_left_goes_as_one():
    cleaner = Redactor((Redaction(pattern="x"),))
    cleaned = cleaner.clean(b"x." * (3 * MAX_MATCHES) + b"tail")
    assert cleaned == (REDACTED.encode() + b".") * MAX_MATCHES + REDACTED.encode()
    assert cleaner.count == MAX_MATCHES + 1


def test_a_result_is_cleaned_in_text_and_structure_and_says_how_much_is_gone():
    result = ToolResult(text="tok_abcd1234", structured={"a": ["tok_abcd1234", 7, None], "b": {"c": "tok_abcd1234"}})
    found = Redactor([TOKEN]).clean_result(result)
    assert found.structured == {"a": ["[redacted]", 7, None], "b": {"c": "[redacted]"}}
    assert found.text == "[redacted]\n[policy took out 3 parts of this result]"


def test_a_value_that_is_pointed_at_is_in_no_part_of_the_result():
    result = ToolResult(text="pin 1234", structured={"a/b": [{"pin": 1234}], "c": "kept"})
    found = Redactor([Redaction(pointer="/a~1b/0/pin")]).clean_result(result)
    assert found.structured == {"a/b": [{"pin": "[redacted]"}], "c": "kept"}
    assert "1234" not in found.text
    assert json.loads(found.text.partition("\n")[0]) == found.structured


@pytest.mark.parametrize("pointer", ["/nothing", "/c/0", "/list/9", "/list/x"])
def test_a_pointer_to_nothing_changes_nothing(pointer):
    result = ToolResult(text="t", structured={"c": "kept", "list": [1]})
    redactor = Redactor([Redaction(pointer=pointer)])
    assert (redactor.clean_result(result).structured, redactor.count) == (result.structured, 0)


@pytest.mark.parametrize("pattern", ["(", "a*", "", r"(a)\1", "(?=a)"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern):
    with pytest.raises(InvalidPattern):
        check_pattern(pattern)


@pytest.mark.parametrize(
    "wrong", [{}, {"kind": "email", "literal": "x"}, {"kind": "mail"}, {"pointer": "a"}, {"literal": ""}]
)
def test_a_redaction_is_one_known_thing(wrong):
    with pytest.raises(ValidationError):
        Redaction.model_validate(wrong)


def test_several_obligations_redact_all_that_one_of_them_does():
    mail = Redaction(kind="email")
    together = combine_obligations(
        [Obligations(redactions=(TOKEN, mail)), Obligations(), Obligations(redactions=(mail,))]
    )
    assert together.redactions == (TOKEN, mail)


def test_what_is_looked_for_is_shown_nowhere_but_in_a_dump_that_wants_it():
    obliged = Obligations(redactions=(Redaction(literal="hunter2"), TOKEN, Redaction(pointer="/pin")))
    shown = obliged.model_dump(mode="json", exclude_defaults=True)
    assert shown == {"redactions": [{"literal": "[redacted]"}, {"pattern": "[redacted]"}, {"pointer": "/pin"}]}
    kept = obliged.model_dump_json(exclude_defaults=True, context=UNREDACTED)
    assert Obligations.model_validate_json(kept) == obliged


def test_an_evil_pattern_on_a_long_text_takes_linear_time():
    redactor = Redactor([Redaction(pattern="(a+)+b")])
    began = time.thread_time()
    assert redactor.clean(b"a" * 200_000) == b"a" * 200_000
    assert time.thread_time() - began < 10


def structured(value, *redactions):
    redactor = Redactor(redactions)
    return redactor.clean_result(ToolResult(is_error=False, structured=value, text="")).structured, redactor.count


def test_numbers_and_keys_of_a_structured_result_are_cleaned_too():
    card, secret = Redaction(kind="credit-card"), Redaction(literal="s3cret")
    assert structured({"n": 4111111111111111, "m": 4, "t": True, "x": None, "f": 1.5}, card) == (
        {"n": REDACTED, "m": 4, "t": True, "x": None, "f": 1.5},
        1,
    )
    assert structured({"l": [[{"a s3cret": 1}]]}, secret) == ({"l": [[{f"a {REDACTED}": 1}]]}, 1)


def test_keys_that_become_the_same_keep_all_their_values():
    given = {"tok_abcd1234": 1, "tok_abcd5678": 2, f"{REDACTED} 2": 3, "tok_aaaa1111": 4}
    assert structured(given, TOKEN)[0] == {REDACTED: 1, f"{REDACTED} 3": 2, f"{REDACTED} 2": 3, f"{REDACTED} 4": 4}
    many, count = structured({f"tok_{number:08d}": number for number in range(20_000)}, TOKEN)
    assert (len(many), count) == (20_000, 20_000)


def test_a_pointer_finds_its_value_though_a_pattern_takes_the_keys_name():
    assert structured({"tok_abcd1234": {"a": 1}}, TOKEN, Redaction(pointer="/tok_abcd1234/a"))[0] == {
        REDACTED: {"a": REDACTED}
    }


def test_values_beyond_the_most_that_are_searched_are_all_redacted():
    many = [1] * MAX_VALUES
    cleaned, count = structured({"a": many, "b": {"c": "plain"}}, TOKEN)
    assert cleaned["a"][:3] == [1, 1, 1]
    assert cleaned["a"][-1] == cleaned["b"] == REDACTED
    assert count == cleaned["a"].count(REDACTED) + 1 < 10
    assert structured({str(number): 1 for number in range(MAX_VALUES)}, TOKEN) == ({}, 1)
