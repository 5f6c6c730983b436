"""The API as a process: its port, readiness and end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time

import httpx2
import pytest

from codesdk.api.server import CannotListen, serve
from codesdk.errors import ExitCode
from codesdk.settings import PortTaken, Settings
from stage import START_S

PROGRAM = """
import sys
from codesdk.api.server import serve
from codesdk.bootstrap import Services
from codesdk.eventlog.hints import LocalHints
from codesdk.jobs import LocalWakeups
from codesdk.settings import Settings

def wiring(settings):
    return Services(settings, hints=LocalHints(), wakeups=LocalWakeups())

serve(Settings(), wiring)
print("closed")
"""


@pytest.fixture
def process(tmp_path):
    environment = {**os.environ, "CODESDK_DATA_DIR": str(tmp_path), "CODESDK_PORT": "0"}
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield started
    started.kill()
    started.communicate()


def ready(tmp_path, helpers):
    path = tmp_path / "run" / "api.json"
    helpers.eventually(path.exists, START_S)
    return json.loads(path.read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_ends_clean_on_a_signal(process, tmp_path, helpers, number):
    told = ready(tmp_path, helpers)
    assert told["pid"] == process.pid
    assert told["mcp_url"] == f"{told['url']}/mcp"
    assert httpx2.get(f"{told['url']}/health").status_code == 200
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "closed\n", "")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_port_that_is_taken_stops_it_before_anything_else():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken) as caught:
            serve(Settings(port=port), lambda _: pytest.fail("the services were opened"))
    assert str(port) in str(caught.value)
    assert "--port" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code is ExitCode.CANNOT_WRITE


def test_an_address_of_another_machine_is_one_clear_line():
    with pytest.raises(CannotListen, match=r"198\.51\.100\.7"):
        serve(Settings(host="198.51.100.7", port=0), lambda _: pytest.fail("the services were opened"))


def test_what_the_services_raise_frees_the_port(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

    def broken(_settings):
        raise PortTaken("a fault of ours")

    with pytest.raises(PortTaken, match="a fault of ours"):
        serve(Settings(port=port, data_dir=tmp_path), broken)
    socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_stopping_it_tells_the_waiting_clients_and_leaves_their_calls_alone(stack, helpers, mode):
    session, token = stack.open_session()
    stack.worker.gate.clear()

    async def go():
        async with stack.client(token, mode) as client:
            running = asyncio.create_task(client.call_tool("workspace_read", {"path": "a"}))
            await asyncio.to_thread(helpers.eventually, lambda: stack.worker.ran)
            waiting = asyncio.create_task(client.call_tool("workspace_exec", {"command": "make"}))
            approval = await asyncio.to_thread(stack.pending, session)
            began = time.monotonic()
            stopped = asyncio.create_task(asyncio.to_thread(stack.stop))
            answers = [(await task).meta["codesdk/call"] for task in (running, waiting)]
            took = time.monotonic() - began
            await stopped
            return approval, answers, took

    approval, answers, took = helpers.within(go())
    assert [(answer["code"], answer["retryable"]) for answer in answers] == [
        ("HOST_STOPPING", False),
        ("HOST_STOPPING", True),
    ]
    assert took < 2.0
    stack.worker.gate.set()
    helpers.eventually(lambda: stack.types(session)[-1] == "tool.call.completed")
    assert stack.worker.cancelled == []
    assert stack.services.approvals.find(session.tenant_id, approval.id).state == "pending"
