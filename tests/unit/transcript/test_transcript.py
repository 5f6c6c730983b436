from __future__ import annotations

import html.parser
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.domain.events import Event, EventUnreadable, RuntimeInfo, Trace
from codesdk.transcript import fold, markdown_page
from codesdk.transcript import html_page as page

TIME = "2026-01-01T00:00:00.000Z"
ALLOW = {"decision": "allow", "sources": []}
CREATED = (
    "session.created",
    {"contract_version": "1.0", "permission_mode": "auto", "labels": {}, "profile": "p", "image": "i"},
)
RUN = {"executed_by": "codesdk", "execution_env": "codesdk_docker", "policy_snapshot": ALLOW}


def user(text):
    return ("task.started", {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]})


def call(what, number=1, attempt=1, **payload):
    prefix = "tool" if what.startswith("output") else "tool.call"
    return f"{prefix}.{what}", {
        "tool_call_id": f"c{number}",
        "attempt": attempt,
        "input_hash": "h",
        "name": "a.b",
        **payload,
    }


def said(*texts, **more):
    return "model.output.completed", {"content": [{"type": "text", "text": text} for text in texts], **more}


def used(scope="message", **counts):
    return "usage.reported", {"scope": scope, **counts}


def log(*steps, task="t1"):
    """Events of one task after `session.created`; a step may name its task as a third item."""
    events = []
    for seq, (kind, payload, *of) in enumerate((CREATED, *steps), 1):
        own = None if kind == "session.created" else (of[0] if of else task)
        trace = Trace(session_id="ses_1", task_id=own)
        events.append(Event(seq=seq, time=TIME, type=kind, trace=trace, runtime=RuntimeInfo(name="r"), payload=payload))
    return events


def told(*steps, **more):
    messages = fold(log(*steps, **more)).messages
    return [(m.role.value, [b.model_dump(mode="json", exclude_none=True) for b in m.content]) for m in messages]


def ran(number=1, attempt=1, **end):
    steps = [call(step, number, attempt) for step in ("requested", "policy_evaluated", "approved", "started")]
    steps[0][1]["input"] = {"path": "a"}
    steps[1][1].update(source="codesdk", result="allow")
    steps[2][1].update(policy_snapshot=ALLOW)
    steps[3][1].update(execution_env="codesdk_docker")
    return [*steps, call("completed", number, attempt, **{**RUN, "result_preview": "ok", **end})]


def test_a_task_is_told_once_each_in_order():
    delta = ("model.output.delta", {"kind": "text_delta", "block_id": "b1", "delta": "Done"})
    assert told(user("Do it."), *ran(), delta, said("Done."), ("task.completed", {})) == [
        ("user", [{"type": "text", "text": "Do it."}]),
        ("assistant", [{"type": "tool_use", "tool_call_id": "c1", "name": "a.b", "input": {"path": "a"}}]),
        ("tool", [{"type": "tool_result", "tool_call_id": "c1", "result": "ok"}]),
        ("assistant", [{"type": "text", "text": "Done."}]),
    ]


def test_a_denied_call_is_an_error_result_with_its_reason():
    denied = call("denied", reason="No patches here.", code="X", policy_snapshot={"decision": "deny", "sources": []})
    assert told(call("requested", input={}), denied, task=None)[-1] == (
        "tool",
        [{"type": "tool_result", "tool_call_id": "c1", "result": "No patches here.", "is_error": True}],
    )


def test_large_inputs_and_results_are_references():
    ref = {"artifact_id": "art_1", "content_hash": "sha256:1", "size": 9999}
    steps = ran(result_ref=ref, result_preview="begin", is_error=True)
    steps[0][1].pop("input")
    steps[0][1]["input_ref"] = ref
    (_, (use,)), (_, (result,)) = told(*steps, task=None)
    assert use["input"] == ref
    assert (result["result"], result["is_error"]) == ({"artifact_ref": ref, "preview": "begin"}, True)


def test_a_result_that_is_not_as_its_preview_says_so():
    steps = ran(result_preview={"exit_code": 1}, differs=["exit code 1, in the preview 0"])
    found = fold(log(user("go"), *steps))
    (block,) = found.messages[-1].content
    assert block.result == {"exit_code": 1, "differs_from_preview": ["exit code 1, in the preview 0"]}
    assert found.calls[0].differs == ("exit code 1, in the preview 0",)


def test_what_is_said_again_is_told_once_in_its_first_place():
    steps = [user("go"), said("Do", message_id="m1"), said("Other"), said("Done", message_id="m1")]
    assert [blocks[0]["text"] for _, blocks in told(*steps)] == ["go", "Done", "Other"]


def test_another_attempt_of_a_call_replaces_the_result_and_not_the_question():
    steps = [*ran(result_preview="lost", is_error=True), *ran(attempt=2, result_preview="found")]
    transcript = fold(log(*steps, task=None))
    assert [m.content[0].type for m in transcript.messages] == ["tool_use", "tool_result"]
    assert transcript.messages[1].content[0].result == "found"
    assert [(c.attempt, c.result) for c in transcript.calls] == [(1, "lost"), (2, "found")]


def test_the_same_message_id_in_another_task_is_another_message():
    first = [user("a"), said("1", message_id="m"), ("task.completed", {})]
    second = [(*step, "t2") for step in (user("b"), said("2", message_id="m"))]
    assert [blocks[0]["text"] for _, blocks in told(*first, *second)] == ["a", "1", "b", "2"]


@pytest.mark.parametrize(
    ("reports", "tokens"),
    [
        ([], None),
        ([used(input_tokens=5)], 5),
        ([used(input_tokens=5, message_id="m"), used(input_tokens=7, message_id="m")], 7),
        ([used(input_tokens=5, message_id="m"), used(input_tokens=7, message_id="n")], 12),
        ([used(input_tokens=5), used(input_tokens=7)], 12),
        ([used(input_tokens=5, message_id="m"), used("task", input_tokens=11)], 11),
        ([used("task", input_tokens=3), used("task", input_tokens=11), used(input_tokens=5, message_id="m")], 11),
        ([used("task", output_tokens=1), used(input_tokens=5, message_id="m")], 5),
    ],
)
def test_usage_counts_nothing_twice(reports, tokens):
    assert fold(log(user("go"), *reports)).usage.input_tokens == tokens


def test_usage_of_several_tasks_adds_up_and_says_what_is_an_estimate():
    first = [user("a"), used("task", input_tokens=3, cost_usd=0.5, cost_source="reported"), ("task.completed", {})]
    second = [(*step, "t2") for step in (user("b"), used(input_tokens=4, cost_usd=0.25, cost_source="estimated"))]
    usage = fold(log(*first, *second)).usage
    assert (usage.input_tokens, usage.cost_usd, usage.output_tokens) == (7, 0.75, None)
    assert usage.cost_is_estimated
    assert not fold(log(*first)).usage.cost_is_estimated


def test_tasks_are_told_with_their_ends():
    error = {"code": "CONTEXT_TOO_LARGE", "message": "Too large.", "retryable": False}
    steps = [
        user("a"),
        ("task.failed", {"error": error}),
        (*user("b"), "t2"),
        ("task.stopped", {"reason": "asked"}, "t2"),
    ]
    failed, stopped = fold(log(*steps)).tasks
    assert (failed.state, failed.error.code, failed.ended_at) == ("failed", "CONTEXT_TOO_LARGE", TIME)
    assert (stopped.state, stopped.reason) == ("stopped", "asked")


def test_a_log_that_breaks_a_rule_has_no_transcript():
    with pytest.raises(EventUnreadable, match="was not requested"):
        fold(log(call("approved", policy_snapshot=ALLOW), task=None))
    with pytest.raises(EventUnreadable, match="empty"):
        fold([])


def test_types_of_a_later_version_change_nothing():
    assert told(user("go"), ("extension.ours.done", {"x": 1})) == told(user("go"))


HOSTILE = [
    "```\n# not a heading\n<script>alert(1)</script>\n````\n",
    "\x1b[31mred\x1b]0;title\x07\r\x9b2J",
    "</pre><img src=x onerror=alert(1)>&lt;",
    "a\u202eb\u2066c\u200f",
    "` `` ``` [x](javascript:alert(1)) ~~~ |",
]
hostile = st.sampled_from(HOSTILE) | st.text(st.sampled_from("`~<>&\"'#\n\t\r\x1b\x00\u202e[]()!x "), max_size=60)


class Seen(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def transcript_of(text):
    steps = [user(text), *ran(result_preview=text), said(text), said(text)]
    steps[1][1]["name"] = text or "a.b"
    steps[1][1]["input"] = {text: text}
    steps[-1] = ("model.output.completed", {"content": [{"type": "code", "code": text, "language": text}]})
    return fold(log(*steps, ("task.stopped", {"reason": text})))


@settings(max_examples=60, deadline=None)
@given(hostile)
def test_what_was_said_never_becomes_markup_or_terminal_codes(text):
    transcript = transcript_of(text)
    for shown in (markdown_page.render(transcript), page.render(transcript)):
        assert [c for c in shown if not c.isprintable() and c not in "\n\t"] == []
    seen = Seen()
    seen.feed(page.render(transcript))
    assert seen.tags <= {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "h3",
        "ul",
        "li",
        "time",
        "pre",
        "div",
    }
    assert seen.attributes <= {"lang", "charset", "http-equiv", "content", "class"}


@settings(max_examples=60, deadline=None)
@given(hostile)
def test_nothing_that_was_said_closes_its_fence(text):
    lines, fence, outside = markdown_page.render(transcript_of(text)).split("\n"), None, []
    for line in lines:
        opening = re.fullmatch(r"(`{3,})text", line)
        if fence is None and opening:
            fence = opening[1]
        elif fence is not None and re.fullmatch(rf" {{0,3}}`{{{len(fence)},}}\s*", line):
            fence = None
        elif fence is None:
            outside.append(line)
    assert fence is None
    assert all(not line or re.match(r"# Session `|## (user|assistant|tool) · `|\* \w+: `|`", line) for line in outside)


def test_a_transcript_is_readable():
    text = markdown_page.render(
        fold(log(user("Do it."), *ran(), said("Done."), ("task.completed", {"stop_reason": "end_turn"})))
    )
    assert text.startswith("# Session `ses_1`\n\n* runtime: `r`\n* events: `9`\n")
    assert "* task: `t1 completed: end_turn`" in text
    assert '`a.b (c1)`\n\n```text\n{\n  "path": "a"\n}\n```' in text
