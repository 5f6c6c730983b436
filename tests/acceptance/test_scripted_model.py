"""The scripted model: its turns and its Anthropic translation as pure code, then its server over a real socket."""

from __future__ import annotations

import http.client
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptance.model_server.anthropic import AnthropicMessages
from acceptance.model_server.gemini import Gemini
from acceptance.model_server.openai_chat import OpenAIChat
from acceptance.model_server.openai_responses import OpenAIResponses
from acceptance.model_server.script import Call, Say, Script, script
from acceptance.model_server.server import ModelServer
from acceptance.model_server.turns import (
    ASIDE,
    AmbiguousTool,
    Conversation,
    OfferedTool,
    ToolAnswer,
    Turn,
    find_tool,
    next_turn,
)

ANTHROPIC = AnthropicMessages()
CHAT = OpenAIChat()
RESPONSES = OpenAIResponses()
GEMINI = Gemini()
NAMES = ("workspace_read", "workspace_write", "workspace_exec")
TOOLS = [{"name": f"mcp__codesdk__{name}", "input_schema": {"type": "object"}} for name in NAMES]

words = st.text(max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(Call, st.sampled_from(NAMES), st.dictionaries(words, json_values, max_size=3))
turns = st.tuples(st.lists(st.builds(Say, words), max_size=2), st.lists(calls, min_size=1, max_size=3))
scripts = st.lists(turns, max_size=3).map(
    lambda parts: Script(turns=tuple((*said, *called) for said, called in parts), closing="The end.")
)


def joined(events):
    """The message that an agent puts together from a stream, read by the API's documentation."""
    message, pieces = None, {}
    for one in events:
        data = json.loads(one.data)
        assert one.name == data["type"]
        match data["type"]:
            case "message_start":
                message = data["message"]
            case "content_block_start":
                assert data["index"] == len(message["content"])
                message["content"].append(data["content_block"])
                pieces[data["index"]] = ""
            case "content_block_delta":
                delta = data["delta"]
                pieces[data["index"]] += delta["text" if delta["type"] == "text_delta" else "partial_json"]
            case "content_block_stop":
                block = message["content"][data["index"]]
                if block["type"] == "text":
                    block["text"] = pieces[data["index"]]
                else:
                    block["input"] = json.loads(pieces[data["index"]])
            case "message_delta":
                message.update(data["delta"])
                message["usage"] = {**message["usage"], **data["usage"]}
            case other:
                assert other == "message_stop"
    return message


@given(scripts)
def test_an_agent_that_obeys_is_led_through_every_turn_once_and_then_hears_every_result(plan):
    messages = [{"role": "user", "content": "go"}]
    made = []
    for _ in plan.turns:
        body = {"tools": TOOLS, "messages": messages, "stream": True}
        message = joined(ANTHROPIC.stream(next_turn(plan, ANTHROPIC.read(body)), body))
        assert message["stop_reason"] == "tool_use"
        used = [block for block in message["content"] if block["type"] == "tool_use"]
        made.append([(block["name"], block["input"]) for block in used])
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": f"result of {block['id']}"} for block in used
        ]
        messages += [{"role": "assistant", "content": message["content"]}, {"role": "user", "content": results}]
    last = next_turn(plan, ANTHROPIC.read({"tools": TOOLS, "messages": messages}))

    assert made == [
        [(f"mcp__codesdk__{step.tool}", step.args) for step in turn if isinstance(step, Call)] for turn in plan.turns
    ]
    assert last.uses == ()
    *quotes, closing = last.texts[0].splitlines()
    assert closing == "The end."
    assert len(set(quotes)) == sum(map(len, made))


@given(scripts)
def test_a_stream_and_a_whole_answer_say_the_same(plan):
    body = {"tools": TOOLS, "messages": [{"role": "user", "content": "go"}], "model": "m"}
    turn = next_turn(plan, ANTHROPIC.read(body))

    assert joined(ANTHROPIC.stream(turn, body)) == ANTHROPIC.whole(turn, body)


CHAT_TOOLS = [{"type": "function", "function": {"name": f"codesdk_{name}", "parameters": {}}} for name in NAMES]


def joined_chunks(events):
    """The completion that an agent puts together from chunks, read by the API's documentation."""
    *chunks, done = events
    assert (done.name, done.data) == ("", "[DONE]")
    message, end, usage, head = {"role": "assistant", "content": None}, None, None, {}
    for one in map(json.loads, (chunk.data for chunk in chunks)):
        head = {name: one[name] for name in ("id", "created", "model")}
        usage = one.get("usage", usage)
        for choice in one["choices"]:
            delta, end = choice["delta"], choice["finish_reason"]
            if delta.get("content"):
                message["content"] = (message["content"] or "") + delta["content"]
            for piece in delta.get("tool_calls", ()):
                every = message.setdefault("tool_calls", [])
                if piece["index"] == len(every):
                    every.append({name: piece[name] for name in ("id", "type", "function")})
                else:
                    every[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    choice = {"index": 0, "message": message, "finish_reason": end}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}


@given(scripts)
def test_a_chat_agent_that_obeys_is_led_through_every_turn_once_and_then_hears_every_result(plan):
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "go"}]
    made = []
    for _ in plan.turns:
        body = {"tools": CHAT_TOOLS, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
        turn = next_turn(plan, CHAT.read(body))
        completion = joined_chunks(CHAT.stream(turn, body))
        assert completion == CHAT.whole(turn, body)
        message = completion["choices"][0]["message"]
        assert completion["choices"][0]["finish_reason"] == "tool_calls"
        made.append(
            [(use["function"]["name"], json.loads(use["function"]["arguments"])) for use in message["tool_calls"]]
        )
        messages += [
            message,
            *(
                {"role": "tool", "tool_call_id": use["id"], "content": f"of {use['id']}"}
                for use in message["tool_calls"]
            ),
        ]
    last = next_turn(plan, CHAT.read({"tools": CHAT_TOOLS, "messages": messages}))

    assert made == [
        [(f"codesdk_{step.tool}", step.args) for step in turn if isinstance(step, Call)] for turn in plan.turns
    ]
    assert last.uses == ()
    *quotes, closing = last.texts[0].splitlines()
    assert closing == "The end."
    assert len(set(quotes)) == sum(map(len, made))


RESPONSES_TOOLS = [
    {"type": "namespace", "name": "mcp__codesdk", "tools": [{"type": "function", "name": name} for name in NAMES]},
    {"type": "function", "name": "request_user_input"},
    {"type": "web_search"},
]


def joined_items(events):
    """The response that an agent puts together from a stream, read by the API's documentation."""
    items, pieces = [], {}
    for number, one in enumerate(events):
        data = json.loads(one.data)
        assert (one.name, data["sequence_number"]) == (data["type"], number)
        match data["type"].removeprefix("response."):
            case "output_item.added":
                assert data["item"]["status"] == "in_progress"
                pieces[data["item"]["id"]] = ""
            case "output_text.delta" | "function_call_arguments.delta":
                pieces[data["item_id"]] += data["delta"]
            case "output_item.done":
                item = data["item"]
                told = item["content"][0]["text"] if item["type"] == "message" else item["arguments"]
                assert pieces[item["id"]] == told
                items.append(item)
            case "completed":
                assert data["response"]["output"] == items
                return data["response"]
    raise AssertionError("the stream has no end")


@given(scripts)
def test_a_responses_agent_that_obeys_is_led_through_every_turn_once_and_then_hears_every_result(plan):
    given_items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}]
    made = []
    for _ in plan.turns:
        body = {"tools": RESPONSES_TOOLS, "input": given_items, "stream": True}
        response = joined_items(RESPONSES.stream(next_turn(plan, RESPONSES.read(body)), body))
        used = [item for item in response["output"] if item["type"] == "function_call"]
        assert all(item["namespace"] == "mcp__codesdk" for item in used)
        made.append([(item["name"], json.loads(item["arguments"])) for item in used])
        told = [
            {"type": "function_call_output", "call_id": each["call_id"], "output": f"of {each['call_id']}"}
            for each in used
        ]
        given_items += [*response["output"], *told]
    last = next_turn(plan, RESPONSES.read({"tools": RESPONSES_TOOLS, "input": given_items}))

    assert made == [[(step.tool, step.args) for step in turn if isinstance(step, Call)] for turn in plan.turns]
    assert last.uses == ()
    *quotes, closing = last.texts[0].splitlines()
    assert closing == "The end."
    assert len(set(quotes)) == sum(map(len, made))


GEMINI_TOOLS = [{"functionDeclarations": [{"name": f"mcp_codesdk_{name}"} for name in NAMES]}]


@given(scripts)
def test_a_gemini_agent_that_obeys_is_led_through_every_turn_once_and_then_hears_every_result(plan):
    contents = [{"role": "user", "parts": [{"text": "go"}]}]
    made = []
    for _ in plan.turns:
        body = {"tools": GEMINI_TOOLS, "contents": contents}
        turn = next_turn(plan, GEMINI.read(body))
        (event,) = GEMINI.stream(turn, body)
        assert json.loads(event.data) == GEMINI.whole(turn, body)
        (candidate,) = GEMINI.whole(turn, body)["candidates"]
        used = [part["functionCall"] for part in candidate["content"]["parts"] if "functionCall" in part]
        made.append([(each["name"], each["args"]) for each in used])
        told = [{"id": each["id"], "name": each["name"], "response": {"output": f"of {each['id']}"}} for each in used]
        contents += [candidate["content"], {"role": "user", "parts": [{"functionResponse": each} for each in told]}]
    last = next_turn(plan, GEMINI.read({"tools": GEMINI_TOOLS, "contents": contents}))

    assert made == [
        [(f"mcp_codesdk_{step.tool}", step.args) for step in turn if isinstance(step, Call)] for turn in plan.turns
    ]
    assert last.uses == ()
    *quotes, closing = last.texts[0].splitlines()
    assert closing == "The end."
    assert len(set(quotes)) == sum(map(len, made))


def test_gemini_clis_question_for_json_is_answered_by_its_schema():
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["a", "b"]}}}
    body = {"contents": [], "generationConfig": {"responseJsonSchema": schema}}
    (candidate,) = GEMINI.whole(next_turn(script(), GEMINI.read(body)), body)["candidates"]

    assert json.loads(candidate["content"]["parts"][0]["text"]) == {"ok": False, "kind": "b"}


def test_the_users_next_words_begin_the_script_anew_with_fresh_call_ids():
    first = {"type": "tool_use", "id": "scripted_1_1", "name": "mcp__codesdk__workspace_read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "scripted_1_1", "content": [{"type": "text", "text": "one"}]}
    body = {
        "tools": TOOLS,
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [first]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": [{"type": "text", "text": "again"}]},
        ],
    }

    turn = next_turn(script(Call("workspace_read", {})), ANTHROPIC.read(body))

    assert [use.call_id for use in turn.uses] == ["scripted_2_1"]


def test_a_note_that_the_agent_slips_in_is_not_the_users_word():
    result = {"type": "tool_result", "tool_use_id": "x", "content": "one", "is_error": True}
    body = {
        "tools": TOOLS,
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "t", "input": {}}]},
            {"role": "user", "content": [result]},
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder>be kind</system-reminder>"}]},
        ],
    }

    conversation = ANTHROPIC.read(body)

    assert conversation.turns == 1
    assert conversation.answers == (ToolAnswer("x", "one", is_error=True),)


def test_one_turn_that_the_agent_spreads_over_several_messages_counts_once():
    messages = [{"role": "user", "content": "go"}]
    for name in ("a", "b"):
        block = {"type": "tool_use", "id": name, "name": "t", "input": {}}
        messages.append({"role": "assistant", "content": [block]})
    messages += [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": ""}]}
        for name in ("a", "b")
    ]

    assert ANTHROPIC.read({"tools": TOOLS, "messages": messages}).turns == 1


def test_a_request_without_tools_is_an_aside_and_uses_up_no_turn():
    assert next_turn(script(Call("workspace_read", {})), Conversation()) == Turn(texts=(ASIDE,))


def test_a_tool_that_was_not_offered_is_called_by_its_bare_name():
    assert find_tool("Bash", (OfferedTool("mcp__codesdk__workspace_read"),)) == OfferedTool("Bash")


def test_an_exact_name_wins_over_a_prefixed_one_and_two_prefixed_ones_are_refused():
    one, other = OfferedTool("a_read"), OfferedTool("b_read")

    assert find_tool("read", (one, other, OfferedTool("read"))) == OfferedTool("read")
    with pytest.raises(AmbiguousTool, match="a_read, b_read"):
        find_tool("read", (one, other))


def test_a_turn_without_a_call_is_refused_when_the_script_is_written():
    with pytest.raises(ValueError, match="closing"):
        script(Say("only words"))


def ask(server, method, path, body=None, headers=None):
    """One HTTP request; status and text of the answer."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_server_streams_over_http_and_records_the_request_without_its_key():
    body = {"tools": TOOLS, "stream": True, "messages": [{"role": "user", "content": "go"}]}
    with ModelServer(script(Call("workspace_read", {"path": "a"}))) as server:
        status, text = ask(server, "POST", "/v1/messages?beta=true", body, {"X-Api-Key": "sk-secret"})

    assert status == 200
    assert [line for line in text.splitlines() if line.startswith("event: ")][-1] == "event: message_stop"
    (request,) = server.turns
    assert request.headers["x-api-key"] == "<9 characters>"
    assert "sk-secret" not in repr(request)
    assert [use.tool.name for use in request.turn.uses] == ["mcp__codesdk__workspace_read"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/messages/count_tokens", 200),
        ("GET", "/v1/models", 200),
        ("HEAD", "/", 200),
        ("POST", "/v1/unheard-of", 404),
    ],
)
def test_asides_are_answered_and_what_nobody_knows_is_refused_and_recorded(method, path, status):
    with ModelServer(script()) as server:
        answered, _ = ask(server, method, path)

    assert answered == status
    assert [(seen.method, seen.path, seen.status) for seen in server.requests] == [(method, path, status)]


def test_an_ambiguous_script_is_told_to_the_agent_as_a_request_that_cannot_be_repeated():
    tools = [{"name": "a_read"}, {"name": "b_read"}]
    body = {"tools": tools, "messages": [{"role": "user", "content": "go"}]}
    with ModelServer(script(Call("read", {}))) as server:
        status, text = ask(server, "POST", "/v1/messages", body)

    assert status == 400
    assert json.loads(text)["error"]["type"] == "invalid_request_error"
