"""A real `codesdk up`: it serves, survives crashes, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from codesdk.cli.demo.agent import connect_mcp, text_of
from codesdk.errors import ExitCode
from codesdk.provision.system.process_identity import mark
from integration.cli.running import DEMO_POLICIES, READY_S, STOP_S, until

pytestmark = [pytest.mark.engine, pytest.mark.redis, pytest.mark.timeout(240)]


def call(opened, tool, arguments):
    async def run():
        async with connect_mcp(opened["mcp_url"], opened["token"]) as client:
            return await client.call_tool(tool, arguments)

    return asyncio.run(run())


def test_it_serves_a_workspace_and_stops_without_leaving_anything(start_up, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "note.txt").write_text("barometer\n")
    author = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "the first"]):
        subprocess.run(["git", "-C", str(project), *words], check=True)
    up = start_up("--workspace", str(project), "--git")
    opened = up.ready()

    assert "barometer" in text_of(call(opened, "workspace_read", {"path": "note.txt"}))
    known = text_of(call(opened, "workspace_exec", {"command": "git status --short && git log --format=%s"}))
    assert known.splitlines() == ["the first"]
    assert up.containers()
    pids = [up.pid_of("api"), up.pid_of("worker")]
    assert up.stop() == 0, up.said()

    assert up.containers() == []
    assert [mark(pid) for pid in pids] == [None, None]
    assert not (up.data_dir / "redis.sock").exists()
    assert list((up.data_dir / "run").glob("*.json")) == []
    assert "Traceback" not in up.said()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_client_that_waits_while_it_stops_is_told_what_became_of_its_call(start_up, codesdk, number):
    up = start_up()
    opened = up.ready()

    def recorded():
        events = codesdk("events", opened["session_id"], "--json").out.splitlines()
        return {"tool.call.started", "approval.requested"} <= {json.loads(event)["type"] for event in events}

    with ThreadPoolExecutor(2) as clients, ExitStack() as failing:
        failing.callback(up.process.kill)  # the clients wait as long as it serves
        running = clients.submit(call, opened, "workspace_exec", {"command": "echo begun; sleep 600"})
        asked = clients.submit(call, opened, "workspace_exec", {"command": "git commit -m x"})
        until(recorded, READY_S, "both calls")
        assert up.stop(number) in (0, 130), up.said()
        ended, denied = running.result(STOP_S), asked.result(STOP_S)
    assert text_of(ended) == "begun\n[cancelled; the whole process tree was ended]"
    assert text_of(denied) == "This call was not run. The session was closed. [SESSION_CLOSED]"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_kept_session_goes_on_with_its_token_and_its_workspace(start_up, number):
    first = start_up("--keep")
    opened = first.ready()
    assert not call(opened, "workspace_write", {"path": "a.txt", "content": "kept\n"}).is_error
    first.stop(number)

    second = start_up("--keep")
    again = second.ready()
    assert (again["session_id"], again["token"]) == (opened["session_id"], opened["token"])
    assert "kept" in text_of(call(again, "workspace_read", {"path": "a.txt"}))
    assert (second.data_dir / "kept-session.json").stat().st_mode & 0o077 == 0
    assert second.stop() == 0, second.said()

    third = start_up("--keep", "--mode", "ask")
    other = third.ready()
    assert other["session_id"] != opened["session_id"]
    assert f"Closed session {opened['session_id']}" in third.said()
    assert third.stop() == 0
    last = start_up()
    last.ready()
    assert last.stop() == 0, last.said()
    assert last.containers() == []


def test_its_key_is_private_and_opens_the_api(start_up):
    up = start_up()
    opened = up.ready()
    key = up.data_dir / "operator.key"

    assert key.stat().st_mode & 0o777 == 0o600
    request = urllib.request.Request(
        f"{opened['url']}/v1/sessions", headers={"Authorization": f"Bearer {key.read_text().strip()}"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        assert [session["id"] for session in json.load(response)["sessions"]] == [opened["session_id"]]


def test_a_second_one_on_the_same_data_directory_is_refused_and_the_first_goes_on(start_up, codesdk):
    up = start_up()
    opened = up.ready()

    second = codesdk("up", "--port", "0")

    assert second.code == 73
    assert str(up.process.pid) in second.line
    assert not call(opened, "workspace_list", {}).is_error


def test_a_killed_worker_is_restarted_and_the_session_goes_on(start_up):
    up = start_up()
    opened = up.ready()
    assert not call(opened, "workspace_write", {"path": "a", "content": "kept"}).is_error
    before = up.pid_of("worker")

    os.kill(before, signal.SIGKILL)

    until(lambda: (up.data_dir / "run" / "worker.json").exists() and up.pid_of("worker") != before, 30, "a restart")
    assert "The worker ended (signal 9)" in up.said()
    assert "kept" in text_of(call(opened, "workspace_read", {"path": "a"}))
    assert up.stop() == 0
    assert up.containers() == []


def test_a_worker_that_hangs_is_ended_and_restarted_and_the_session_goes_on(start_up):
    up = start_up(CODESDK_HOST_LEASE_S="10")
    opened = up.ready()
    assert not call(opened, "workspace_write", {"path": "a", "content": "kept"}).is_error
    before = mark(up.pid_of("worker"))

    os.kill(before.pid, signal.SIGSTOP)

    until(
        lambda: (up.data_dir / "run" / "worker.json").exists() and up.pid_of("worker") != before.pid, 120, "a restart"
    )
    assert not before.alive
    assert "The worker sent no heartbeat for 10 s; killing it." in up.said()
    assert "kept" in text_of(call(opened, "workspace_read", {"path": "a"}))
    assert up.stop() == 0
    assert up.containers() == []


def test_sandboxes_of_a_worker_that_is_dead_at_the_stop_are_removed(start_up):
    up = start_up()
    call(up.ready(), "workspace_list", {})
    os.kill(up.pid_of("worker"), signal.SIGKILL)

    assert up.stop() == 0, up.said()
    assert up.containers() == []


def test_nothing_of_ours_outlives_a_killed_supervisor_and_the_next_one_cleans_up(start_up):
    up = start_up()
    up.ready()
    marks = [mark(up.pid_of("api")), mark(up.pid_of("worker"))]
    assert None not in marks

    up.stop(signal.SIGKILL)
    until(lambda: not any(one.alive for one in marks), 10, "the end of both processes")

    following = start_up()
    following.ready()
    assert following.stop() == 0
    assert following.containers() == []
    assert not (following.data_dir / "redis.sock").exists()


def test_a_start_says_that_a_version_decides_in_place_of_the_files(start_up, codesdk, tmp_path):
    mine = tmp_path / "mine"
    shutil.copytree(DEMO_POLICIES, mine)
    rules = mine / "policy.yaml"
    rules.write_text(rules.read_text().replace("Publishing is done by people.", "People publish."))
    first = start_up("--policies", str(DEMO_POLICIES))
    first.ready()
    assert "are not in force" not in first.said()
    assert codesdk("policy", "promote", str(mine)).code == 0
    assert "--to-files" in codesdk("policy", "rollback").out
    assert first.stop() == 0

    following = start_up("--policies", str(mine))
    following.ready()
    assert f"The policy files in {mine} are not in force" in following.said()
    assert following.stop() == 0


def test_an_interrupt_while_it_starts_stops_what_was_started(start_up):
    up = start_up()
    until((up.data_dir / "redis.sock").exists, 60, "Redis")

    assert up.stop(signal.SIGINT) in (0, 130), up.said()
    assert not (up.data_dir / "redis.sock").exists()
    assert "Traceback" not in up.said()


def test_a_closed_terminal_stops_it_as_a_signal_does(start_up):
    up = start_up()
    up.ready()

    assert up.stop(signal.SIGHUP) == 0
    assert up.containers() == []
    assert not (up.data_dir / "redis.sock").exists()


def test_a_redis_that_died_is_started_again(start_up):
    up = start_up()
    opened = up.ready()
    known = json.loads((up.data_dir / "run" / "redis.json").read_text())

    os.kill(known["pid"], signal.SIGKILL)

    until(lambda: "Redis answers again" in up.said(), 40, "a new Redis")
    assert not call(opened, "workspace_list", {}).is_error
    assert up.stop() == 0
    assert not (up.data_dir / "redis.sock").exists()


def test_a_person_approves_on_the_command_line_while_the_call_waits(start_up, codesdk):
    up = start_up()
    opened = up.ready()

    async def ask():
        async with connect_mcp(opened["mcp_url"], opened["token"]) as client:
            waiting = asyncio.create_task(client.call_tool("workspace_exec", {"command": "chmod 700 ."}))
            return await asyncio.gather(waiting, asyncio.to_thread(answer))

    def answer():
        def pending():
            return json.loads(codesdk("approvals", "list", "--json").out)["approvals"]

        (approval,) = until(pending, 20, "the question")
        table = codesdk("approvals", "list")
        assert "chmod 700 ." in table.out
        return codesdk("approvals", "approve", approval["id"])

    result, answered = asyncio.run(ask())

    assert answered.code == 0
    assert "chmod 700 ." in answered.out
    assert not result.is_error, text_of(result)
    replayed = json.loads(codesdk("events", "replay", opened["session_id"], "--json").out)
    assert (replayed["violation"], replayed["differences"]) == (None, [])
    assert [voice["source"] for voice in replayed["history"]["calls"][0]["voices"]] == ["codesdk", "user"]


def test_a_vote_on_an_approval_that_is_not_there_is_told_in_one_line(start_up, codesdk):
    start_up().ready()

    ended = codesdk("approvals", "reject", "apr_00000000000000000000000000")

    assert ended.code == 1
    assert ended.line.startswith("error: There is no approval")
    nothing = codesdk("approvals", "approve", "--rule", "default")
    assert (nothing.code, nothing.out) == (1, "")
    assert nothing.line.startswith("error: No approval of the rule default is pending")


def test_a_stack_in_yolo_starts_once_it_is_allowed_and_then_only_denies(start_up, codesdk):
    refused = start_up("--mode", "yolo")
    assert refused.process.wait(READY_S) == ExitCode.NO_PERMISSION, refused.said()
    (command,) = re.findall(r"codesdk (tenants allow-yolo \S+)`", refused.said())
    assert codesdk(*command.split()).code == 0

    up = start_up("--mode", "yolo")
    opened = up.ready()
    asked = call(opened, "workspace_exec", {"command": "chmod 700 ."})
    denied = call(opened, "workspace_exec", {"command": "rm -rf x"})

    assert not asked.is_error, text_of(asked)
    assert "no-delete" in text_of(denied) or "not allowed" in text_of(denied)
    assert denied.is_error
    assert json.loads(codesdk("approvals", "list", "--all", "--json").out)["approvals"] == []


def test_the_stdio_bridge_opens_a_session_of_its_own_and_closes_it_at_the_end(start_up, codesdk):
    up = start_up()
    opened = up.ready()
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "codesdk.cli", "mcp", "--data-dir", str(up.data_dir)], env=dict(os.environ)
    )

    async def use():
        async with Client(server) as client:
            tools = await client.list_tools()
            return tools, await client.call_tool("workspace_exec", {"argv": ["id", "-u"]})

    tools, result = asyncio.run(use())

    assert "workspace_read" in {tool.name for tool in tools.tools}
    assert re.search(r"\b2\d{5}\b", text_of(result))
    closed = until(
        lambda: [
            s for s in json.loads(codesdk("sessions", "list", "--json").out)["sessions"] if s["state"] == "closed"
        ],
        20,
        "the end of the bridge's session",
    )
    assert [session["labels"]["opened-by"] for session in closed] == ["codesdk mcp"]
    assert closed[0]["id"] != opened["session_id"]


def test_a_terminated_bridge_closes_its_session_and_ends_though_stdin_stays_open(start_up, codesdk):
    up = start_up()
    up.ready()
    line = [sys.executable, "-m", "codesdk.cli", "mcp", "--data-dir", str(up.data_dir)]
    bridge = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def states():
        listed = json.loads(codesdk("sessions", "list", "--json").out)["sessions"]
        return [s["state"] for s in listed if s["labels"]["opened-by"] == "codesdk mcp"]

    with bridge:
        until(states, READY_S, "the bridge's session")
        bridge.terminate()
        code = bridge.wait(STOP_S)
        assert (code, bridge.stdout.read(), bridge.stderr.read()) == (0, b"", b"")
    assert states() == ["closed"]


def test_events_are_followed_as_they_come(start_up, codesdk):
    opened = start_up().ready()
    call(opened, "workspace_list", {})

    shown = codesdk("events", opened["session_id"], "--json")

    events = [json.loads(line) for line in shown.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert "tool.call.completed" in {event["type"] for event in events}
    assert opened["session_id"] in codesdk("sessions", "list", "--json").out
    assert codesdk("sessions", "close", opened["session_id"]).code == 0


def test_people_get_the_lines_to_paste(start_up, codesdk):
    start_up().ready()

    shown = codesdk("sessions", "open")

    for program in ("claude --tools", "codex -c", "gemini mcp add"):
        assert program in shown.out
