"""The tools, prompts and resources that the official conformance suite expects, in addition to the protocol.

They exist in this test's entry point only. `equip` adds them to a real host's server, whose own tools stay.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

Ctx = ServerRequestContext[Any, Any]
Made = types.CallToolResult | types.InputRequiredResult

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
SOUND = base64.b64encode(
    b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00"
).decode()
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
PRIVATE: dict[str, Any] = {"ttl_ms": 0, "cache_scope": "private"}


def text(said: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=said)])


def form(message: str, /, **properties: Any) -> types.ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(prompt: str, tokens: int) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=prompt))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=tokens))


def needs(**requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests)


def accepted(params: types.CallToolRequestParams | types.GetPromptRequestParams, key: str) -> dict[str, Any] | None:
    """The form that came back under that key, where it was sent."""
    answer = (params.input_responses or {}).get(key)
    return answer.content if isinstance(answer, types.ElicitResult) and answer.action == "accept" else None


# -- tools -----------------------------------------------------------------------------------------------------------


async def simple(_ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    return text("This is a simple text response for testing.")


async def image(_ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    return types.CallToolResult(content=[types.ImageContent(data=PIXEL, mime_type="image/png")])


async def audio(_ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    return types.CallToolResult(content=[types.AudioContent(data=SOUND, mime_type="audio/wav")])


async def embedded(_ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    inner = types.TextResourceContents(
        uri="test://embedded-resource", mime_type="text/plain", text="This is an embedded resource content."
    )
    return types.CallToolResult(content=[types.EmbeddedResource(resource=inner)])


async def mixed(_ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    inner = types.TextResourceContents(
        uri="test://mixed-content-resource", mime_type="application/json", text='{"test":"data","value":123}'
    )
    return types.CallToolResult(
        content=[
            types.TextContent(text="Multiple content types test:"),
            types.ImageContent(data=PIXEL, mime_type="image/png"),
            types.EmbeddedResource(resource=inner),
        ]
    )


async def logging(ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    for number, said in enumerate(("Tool execution started", "Tool processing data", "Tool execution completed")):
        await asyncio.sleep(0.05 if number else 0)
        await ctx.session.send_log_message("info", said, related_request_id=ctx.request_id)
    return text("The three messages were sent.")


async def failing(_ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    said = types.TextContent(text="This tool intentionally returns an error for testing")
    return types.CallToolResult(content=[said], is_error=True)


async def progress(ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return text("All of it is done.")


async def sample(ctx: Ctx, params: types.CallToolRequestParams) -> Made:
    asked = sampling(str((params.arguments or {})["prompt"]), 100)
    answer = await ctx.session.create_message(asked.params.messages, max_tokens=100, related_request_id=ctx.request_id)
    return text(f"LLM response: {getattr(answer.content, 'text', '')}")


async def elicit(ctx: Ctx, params: types.CallToolRequestParams) -> Made:
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    answer = await ask(ctx, str((params.arguments or {})["message"]), fields, list(fields))
    return text(f"User response: action: {answer.action}, content: {json.dumps(answer.content)}")


async def elicit_defaults(ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return completed(await ask(ctx, "Are these right?", fields, []))


async def elicit_enums(ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    plain = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    choices = [
        {"const": f"value{n}", "title": f"{word} Choice"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    fields: dict[str, Any] = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": choices}},
    }
    return completed(await ask(ctx, "Choose.", fields, []))


async def ask(ctx: Ctx, message: str, fields: dict[str, Any], required: list[str]) -> types.ElicitResult:
    schema = {"type": "object", "properties": fields, "required": required}
    return await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)


def completed(answer: types.ElicitResult) -> types.CallToolResult:
    return text(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}")


async def reconnection(ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await asyncio.sleep(0.1)
    return text("The answer came over the second stream.")


async def fact(_ctx: Ctx, params: types.CallToolRequestParams) -> Made:
    return text(f"Given: {json.dumps(params.arguments or {}, sort_keys=True)}")


async def missing_capability(ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    declared = ctx.session.client_capabilities
    if declared is None or declared.sampling is None:
        data = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool needs sampling.", data=data)
    return text("Sampling was declared.")


async def ir_elicitation(_ctx: Ctx, params: types.CallToolRequestParams) -> Made:
    given = accepted(params, "user_name")
    if given is None or not isinstance(given.get("name"), str):
        return needs(user_name=form("What is your name?", name={"type": "string"}))
    return text(f"Hello, {given['name']}!")


async def ir_sampling(_ctx: Ctx, params: types.CallToolRequestParams) -> Made:
    answer = (params.input_responses or {}).get("capital_question")
    if not isinstance(answer, types.CreateMessageResult):
        return needs(capital_question=sampling("What is the capital of France?", 100))
    return text(f"The model said: {getattr(answer.content, 'text', '')}")


async def ir_roots(_ctx: Ctx, params: types.CallToolRequestParams) -> Made:
    answer = (params.input_responses or {}).get("client_roots")
    if not isinstance(answer, types.ListRootsResult):
        return needs(client_roots=types.ListRootsRequest(params=types.RequestParams()))
    return text(f"Roots: {', '.join(str(root.uri) for root in answer.roots)}")


async def ir_state(_ctx: Ctx, params: types.CallToolRequestParams) -> Made:
    if params.request_state != "asked" or accepted(params, "confirm") is None:
        asked = form("Please confirm", ok={"type": "boolean"})
        return types.InputRequiredResult(input_requests={"confirm": asked}, request_state="asked")
    return text("state-ok")


async def ir_multiple(_ctx: Ctx, params: types.CallToolRequestParams) -> Made:
    asked = {
        "user_name": form("What is your name?", name={"type": "string"}),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": types.ListRootsRequest(params=types.RequestParams()),
    }
    if params.request_state is None or (params.input_responses or {}).keys() < asked.keys():
        return types.InputRequiredResult(input_requests=asked, request_state="asked")
    return text("All three came back.")


async def ir_rounds(_ctx: Ctx, params: types.CallToolRequestParams) -> Made:
    if params.request_state == "1" and accepted(params, "step1") is not None:
        asked = form("Step 2: What is your favorite color?", color={"type": "string"})
        return types.InputRequiredResult(input_requests={"step2": asked}, request_state="2")
    if params.request_state == "2" and accepted(params, "step2") is not None:
        return text("Both steps are done.")
    asked = form("Step 1: What is your name?", name={"type": "string"})
    return types.InputRequiredResult(input_requests={"step1": asked}, request_state="1")


async def ir_capabilities(ctx: Ctx, _params: types.CallToolRequestParams) -> Made:
    declared = ctx.session.client_capabilities or types.ClientCapabilities()
    possible: dict[str, Any] = {}
    if declared.sampling is not None:
        possible["capital_question"] = sampling("What is the capital of France?", 100)
    if declared.elicitation is not None:
        possible["user_name"] = form("What is your name?", name={"type": "string"})
    return needs(**possible) if possible else text("This client can be asked nothing.")


JSON_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
HEADER: dict[str, Any] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "note": {"type": "string"}},
}
Tool = Callable[[Ctx, types.CallToolRequestParams], Awaitable[Made]]
TOOLS: dict[str, tuple[Tool, dict[str, Any]]] = {
    "test_simple_text": (simple, NOTHING),
    "test_image_content": (image, NOTHING),
    "test_audio_content": (audio, NOTHING),
    "test_embedded_resource": (embedded, NOTHING),
    "test_multiple_content_types": (mixed, NOTHING),
    "test_tool_with_logging": (logging, NOTHING),
    "test_logging_tool": (logging, NOTHING),
    "test_error_handling": (failing, NOTHING),
    "test_tool_with_progress": (progress, NOTHING),
    "test_sampling": (sample, {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}),
    "test_elicitation": (
        elicit,
        {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    ),
    "test_elicitation_sep1034_defaults": (elicit_defaults, NOTHING),
    "test_elicitation_sep1330_enums": (elicit_enums, NOTHING),
    "test_reconnection": (reconnection, NOTHING),
    "json_schema_2020_12_tool": (fact, JSON_SCHEMA),
    "test_x_mcp_header": (fact, HEADER),
    "test_missing_capability": (missing_capability, NOTHING),
    "test_streaming_elicitation": (ir_elicitation, NOTHING),
    "test_input_required_result_elicitation": (ir_elicitation, NOTHING),
    "test_input_required_result_sampling": (ir_sampling, NOTHING),
    "test_input_required_result_list_roots": (ir_roots, NOTHING),
    "test_input_required_result_request_state": (ir_state, NOTHING),
    "test_input_required_result_tampered_state": (ir_state, NOTHING),
    "test_input_required_result_multiple_inputs": (ir_multiple, NOTHING),
    "test_input_required_result_multi_round": (ir_rounds, NOTHING),
    "test_input_required_result_capabilities": (ir_capabilities, NOTHING),
}

# -- prompts and resources -------------------------------------------------------------------------------------------

ARGUMENTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}
STATIC: dict[str, types.TextResourceContents | types.BlobResourceContents] = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text", mime_type="text/plain", text="This is the content of the static text resource."
    ),
    "test://static-binary": types.BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PIXEL),
    "test://watched-resource": types.TextResourceContents(
        uri="test://watched-resource", mime_type="text/plain", text="Watched."
    ),
}


async def list_prompts(_ctx: Ctx, _params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    shown = [
        types.Prompt(
            name=name,
            description=f"The prompt {name}.",
            arguments=[types.PromptArgument(name=each, description=each, required=True) for each in arguments],
        )
        for name, arguments in ARGUMENTS.items()
    ]
    return types.ListPromptsResult(prompts=shown, **PRIVATE)


async def get_prompt(
    _ctx: Ctx, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            content: list[Any] = [types.TextContent(text="This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            said = f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"
            content = [types.TextContent(text=said)]
        case "test_prompt_with_embedded_resource":
            inner = types.TextResourceContents(
                uri=given["resourceUri"], mime_type="text/plain", text="Embedded resource content for testing."
            )
            content = [
                types.EmbeddedResource(resource=inner),
                types.TextContent(text="Please process the embedded resource above."),
            ]
        case "test_prompt_with_image":
            content = [
                types.ImageContent(data=PIXEL, mime_type="image/png"),
                types.TextContent(text="Please analyze the image above."),
            ]
        case "test_input_required_result_prompt":
            context = accepted(params, "user_context")
            if context is None:
                return needs(user_context=form("What context should the prompt use?", context={"type": "string"}))
            content = [types.TextContent(text=f"The context is {context['context']}.")]
        case _:
            raise MCPError(types.INVALID_PARAMS, f"There is no prompt {params.name}.")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=part) for part in content])


async def complete(_ctx: Ctx, _params: types.CompleteRequestParams) -> types.CompleteResult:
    return types.CompleteResult(completion=types.Completion(values=["paris", "park", "party"], total=3, has_more=False))


async def nothing(_ctx: Ctx, _params: Any) -> types.EmptyResult:
    return types.EmptyResult()


def equip(server: Server[Any]) -> None:
    """Add all of it to a host's server, beside its own."""
    bus = InMemorySubscriptionBus()

    async def changes(ctx: Ctx, params: types.CallToolRequestParams) -> Made:
        event = {"tool": ToolsListChanged, "prompt": PromptsListChanged, "resource": ResourcesListChanged}[
            params.name.split("_")[2]
        ]
        await bus.publish(event())
        return text("It was announced.")

    tools = TOOLS | {f"test_trigger_{kind}_change": (changes, NOTHING) for kind in ("tool", "prompt", "resource")}
    own_list, own_call = server.get_request_handler("tools/list"), server.get_request_handler("tools/call")
    own_resources, own_read = server.get_request_handler("resources/list"), server.get_request_handler("resources/read")
    own_templates = server.get_request_handler("resources/templates/list")
    own_schema = server.get_tool_input_schema
    assert own_list
    assert own_call
    assert own_resources
    assert own_read
    assert own_templates
    assert own_schema

    async def list_tools(ctx: Ctx, params: Any) -> Any:
        listed = await own_list.handler(ctx, params)
        more = [
            types.Tool(name=name, description=f"The tool {name}.", input_schema=schema)
            for name, (_, schema) in tools.items()
        ]
        return listed.model_copy(update={"tools": [*listed.tools, *more]})

    async def call_tool(ctx: Ctx, params: types.CallToolRequestParams) -> Any:
        return await (tools[params.name][0] if params.name in tools else own_call.handler)(ctx, params)

    async def list_resources(ctx: Ctx, params: Any) -> Any:
        listed = await own_resources.handler(ctx, params)
        more = [
            types.Resource(uri=uri, name=uri, description=f"The resource {uri}.", mime_type=content.mime_type)
            for uri, content in STATIC.items()
        ]
        return listed.model_copy(update={"resources": [*listed.resources, *more]})

    async def list_templates(ctx: Ctx, params: Any) -> Any:
        listed = await own_templates.handler(ctx, params)
        more = types.ResourceTemplate(
            uri_template="test://template/{id}/data",
            name="data",
            description="A template.",
            mime_type="application/json",
        )
        return listed.model_copy(update={"resource_templates": [*listed.resource_templates, more]})

    async def read(ctx: Ctx, params: types.ReadResourceRequestParams) -> Any:
        uri = str(params.uri)
        if uri in STATIC:
            return types.ReadResourceResult(contents=[STATIC[uri]], **PRIVATE)
        if uri.startswith("test://template/") and uri.endswith("/data"):
            number = uri.split("/")[3]
            data = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
            found = types.TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(data))
            return types.ReadResourceResult(contents=[found], **PRIVATE)
        return await own_read.handler(ctx, params)

    server.add_request_handler("tools/list", own_list.params_type, list_tools)
    server.add_request_handler("tools/call", own_call.params_type, call_tool)
    server.add_request_handler("resources/list", own_resources.params_type, list_resources)
    server.add_request_handler("resources/templates/list", own_templates.params_type, list_templates)
    server.add_request_handler("resources/read", own_read.params_type, read)
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, nothing)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, nothing)
    server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, nothing)
    server.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, ListenHandler(bus))
    server.get_tool_input_schema = lambda name: tools[name][1] if name in tools else own_schema(name)
