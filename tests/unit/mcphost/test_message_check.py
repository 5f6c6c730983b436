"""Lines of a stdio client that can't be forwarded: each request in them is answered."""

from __future__ import annotations

import json

import pytest

from codesdk.mcphost.message_check import MAX_DEPTH, check_message


def call(arguments, request="7"):
    params = f'{{"name": "workspace_read", "arguments": {arguments}}}'
    return f'{{"jsonrpc": "2.0", "id": {request}, "method": "tools/call", "params": {params}}}'.encode()


DEEP = "[" * 150_000 + "]" * 150_000
REJECTED = {
    "half an emoji": (call(r'{"path": "\ud83d"}'), "params.arguments.path contains half a surrogate pair"),
    "the other half": (call(r'{"list": [1, "a\udc00"]}'), "params.arguments.list[1] contains half"),
    "half an emoji in a key": (call(r'{"\ud83d": 1}'), "a key of params.arguments contains half"),
    "NaN": (call('{"n": NaN}'), "params.arguments.n is not a finite number"),
    "infinity": (call('{"n": -Infinity}'), "params.arguments.n is not a finite number"),
    "beyond range": (call('{"n": 1e999}'), "params.arguments.n is not a finite number"),
    "many digits": (call('{"n": ' + "9" * 5000 + "}"), "params.arguments.n is not a finite number"),
    "just too deep": (call("[" * MAX_DEPTH + "]" * MAX_DEPTH), "nested deeper than 100 levels"),
    "far too deep": (call(DEEP), "nested deeper than 100 levels"),
    "cut off": (call('{"path": "a"}')[:-1], "This request was not sent"),
    "no UTF-8": (call('{"path": "a"}').replace(b'"a"', b'"\xff"'), "invalid start byte"),
    "UTF-16 mark": (b"\xff\xfe" + call("{}"), "invalid start byte"),
    "huge and cut off": (call('{"path": "' + "a" * 5_000_000 + '"}')[:-1], "This request was not sent"),
    "no method": (b'{"jsonrpc": "2.0", "id": 7}', "not a JSON-RPC message"),
    "params of no object": (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": 1}', "not a JSON-RPC message"),
    "another version": (b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}', "not a JSON-RPC message"),
    "an id within": (b'{"params": {"id": 1}, "id": 7, "x": "\\"id\\": 2", ', "This request was not sent"),
}


@pytest.mark.parametrize(("line", "said"), REJECTED.values(), ids=REJECTED)
def test_a_request_that_cannot_be_forwarded_is_answered_with_its_id(line, said):
    _, (error,) = check_message(line + b"\n")
    assert error.id == 7
    assert said in error.error.message


@pytest.mark.parametrize("request_id", ['"a\\"b"', "-3", '"7"', str(10**30)])
def test_every_kind_of_id_comes_back(request_id):
    _, (error,) = check_message(call('{"n": NaN}', request_id))
    _, (cut,) = check_message(call("{}", request_id)[:-1])
    assert error.id == cut.id == json.loads(request_id)


@pytest.mark.parametrize("request_id", ["1.5", "null", "true", "[1]", r'"\ud83d"'])
def test_an_id_that_cannot_be_repeated_is_answered_with_none(request_id):
    _, (error,) = check_message(call("{}", request_id))
    assert error.id is None


def test_each_request_of_a_batch_is_answered():
    _, errors = check_message(b"[" + call("{}", "1") + b"," + call("{}", "2") + b', {"jsonrpc": "2.0", "method": "x"}]')
    assert [error.id for error in errors] == [1, 2]


@pytest.mark.parametrize(
    "line",
    [
        call(r'{"path": "\ud83d\ude00 \u00e4"}'),
        call('{"n": 1e308}'),
        call('{"n": 123456789012345678901234567890}'),
        call('{"path": "' + "a" * 5_000_000 + '"}'),
        call("[" * (MAX_DEPTH - 3) + "]" * (MAX_DEPTH - 3)),
        b"\xef\xbb\xbf" + call("{}"),
    ],
)
def test_a_good_line_goes_on_as_it_is(line):
    text, errors = check_message(line)
    assert errors == []
    assert text == line.decode("utf-8-sig")


@pytest.mark.parametrize(
    "line", [b"\n", b'{"jsonrpc": "2.0", "method": "x", "params": NaN}', b'{"jsonrpc": "2.0", "id": 1, "result": NaN}']
)
def test_nobody_is_answered_who_asked_nothing(line):
    _, errors = check_message(line)
    assert errors == []
