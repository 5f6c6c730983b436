"""What a result costs the model: characters that each real agent hands to its model, as `docs/reference/mcp-results.md` has them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acceptance.agents import claude, codex, gemini, kimi, opencode, qwen
from acceptance.agents.agent import CALL_LIMIT_S, Wiring
from acceptance.agents.install import INSTALL_LIMIT_S
from acceptance.conftest import program_or_skip
from acceptance.model_server.script import Call, script
from acceptance.model_server.server import ModelServer
from stage import REPOSITORY

pytestmark = [
    pytest.mark.node,
    pytest.mark.engine,
    pytest.mark.redis,
    pytest.mark.timeout(INSTALL_LIMIT_S + 180),  # the first test may have to install the agent
]

PAGE = REPOSITORY / "docs" / "reference" / "mcp-results.md"
AGENTS = {
    "Claude Code": (claude.ClaudeCode, claude.PACKAGE),
    "Claude Code, newer": (claude.ClaudeCode, replace(claude.PACKAGE, name="claude-code-newer")),
    "Codex": (codex.Codex, codex.PACKAGE),
    "Gemini CLI": (gemini.GeminiCli, gemini.PACKAGE),
    "Kimi Code": (kimi.KimiCode, kimi.PACKAGE),
    "OpenCode": (opencode.OpenCode, opencode.PACKAGE),
    "Qwen Code": (qwen.QwenCode, qwen.PACKAGE),
    "Qwen Code, newer": (
        qwen.QwenCode,
        replace(qwen.PACKAGE, name="qwen-code-newer", binary="node_modules/@qwen-code/qwen-code/cli-entry.js"),
    ),
}
SOURCE = "".join(f'    value_{number:03} = settings["name"]\n' for number in range(200))
FILES = {
    "source.py": SOURCE,
    "other.txt": "one\n",
    "hits.txt": "".join(f"needle {number:02}\n" for number in range(20)),
}
SLACK = 40
"""Characters that a result may differ by: durations and the agents' own notes."""


CALLS = {
    "a short command": Call("workspace_exec", {"command": "echo made"}),
    "a command that prints 300 lines": Call(
        "workspace_exec", {"command": "for n in $(seq 300); do echo line $n of 300; done"}
    ),
    "a command that fails": Call("workspace_exec", {"command": "echo gone >&2; exit 3"}),
    "read 200 lines": Call("workspace_read", {"path": "source.py"}),
    "search, 20 hits": Call("workspace_search", {"pattern": "needle"}),
    "list": Call("workspace_list", {"path": "."}),
    "edit": Call("workspace_edit", {"path": "other.txt", "old_text": "one", "new_text": "two"}),
    "a denied call": Call("workspace_exec", {"command": "curl http://example.com"}),
}


def measure(name, stack, folder):
    """What its model gets of each call."""
    kind, package = AGENTS[name]
    _, token = stack.open_session(files=FILES)
    with (
        ModelServer(script(list(CALLS.values()))) as model,
        kind(program_or_skip(package), folder, Wiring(model.url, stack.url, token, CALL_LIMIT_S)) as agent,
    ):
        run = agent.finish()
        answers = model.turns[-1].conversation.answers
    assert len(answers) == len(CALLS), (run, answers)
    if name.startswith("Claude Code"):  # it hands on parallel results as they come
        answers = sorted(answers, key=lambda answer: int(answer.call_id.rpartition("_")[2]))
    return {call: answer.text for call, answer in zip(CALLS, answers, strict=True)}


def written(name):
    """The page's column: characters by call, after the change."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("|")]
    column = [cell.strip() for cell in rows[0]].index(name)
    return {row[0].strip(): int(row[column].split("→")[1].replace(",", "")) for row in rows[2:]}


@pytest.mark.parametrize("name", AGENTS)
def test_a_result_reaches_the_model_once_and_without_metadata(npm, stack, tmp_path, name):
    answers = measure(name, stack, tmp_path / "agent")

    said = written(name)
    differing = {
        call: f"{len(text)} (the page: {said[call]})"
        for call, text in answers.items()
        if abs(len(text) - said[call]) > SLACK
    }
    assert differing == {}
    assert answers["a command that prints 300 lines"].count("line 299 of 300") == 1
    whole = "".join(answers.values())
    assert not [word for word in ("sha256", "tool_call_id", "codesdk/call", "structuredContent") if word in whole]
