"""Chooses the scripted model's next turn from the conversation in a request, independent of any protocol.

It keeps no state: the conversation determines the turn, so an agent may repeat a request, drop a connection or resume
later, and several agents may share one server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acceptance.model_server.script import Call, Say, Script

ASIDE = "A scripted aside."
"""The answer to a request that offers no tools: a title, a quota probe, a summary."""


class AmbiguousTool(Exception):
    """A script's tool name fits several tools of the request; the script must say more of the name."""


@dataclass(frozen=True)
class OfferedTool:
    """A tool as the agent named it to the model. Codex alone puts its MCP tools into a namespace."""

    name: str
    namespace: str | None = None

    @property
    def full_name(self) -> str:
        """With its namespace, where it has one."""
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"


@dataclass(frozen=True)
class ToolAnswer:
    """What the agent told the model about one call."""

    call_id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class Conversation:
    """What a request shows, whatever its protocol."""

    tools: tuple[OfferedTool, ...] = ()
    earlier_turns: int = 0
    """Turns with tool calls before the user's last words."""
    turns: int = 0
    """Turns with tool calls since then."""
    answers: tuple[ToolAnswer, ...] = ()
    """Tool results since then, in order."""


@dataclass(frozen=True)
class ToolUse:
    """A call that the model makes."""

    call_id: str
    tool: OfferedTool
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Turn:
    """What the model says next; with no uses it is the last word."""

    texts: tuple[str, ...]
    uses: tuple[ToolUse, ...] = ()


def next_turn(script: Script, conversation: Conversation) -> Turn:
    """The script's turn that this conversation has come to, or the closing words.

    Raises:
        AmbiguousTool: a call of the turn fits several of the offered tools.
    """
    if not conversation.tools:
        return Turn(texts=(ASIDE,))
    if conversation.turns >= len(script.turns):
        return Turn(texts=(closing_words(script, conversation.answers),))
    steps = script.turns[conversation.turns]
    number = conversation.earlier_turns + conversation.turns + 1
    calls = [step for step in steps if isinstance(step, Call)]
    return Turn(
        texts=tuple(step.text for step in steps if isinstance(step, Say)),
        uses=tuple(
            ToolUse(f"scripted_{number}_{index}", find_tool(call.tool, conversation.tools), dict(call.args))
            for index, call in enumerate(calls, start=1)
        ),
    )


def find_tool(name: str, offered: tuple[OfferedTool, ...]) -> OfferedTool:
    """The offered tool of that name, with whatever prefix; the bare name where there is none.

    A model may well call a tool that it was not offered, and what the agent does then is worth a test.

    Raises:
        AmbiguousTool: several fit and none is exact.
    """
    exact = [tool for tool in offered if tool.name == name]
    fitting = exact or [tool for tool in offered if tool.name.endswith("_" + name)]
    if len(fitting) > 1:
        raise AmbiguousTool(f"{name!r} fits {', '.join(tool.name for tool in fitting)}")
    return fitting[0] if fitting else OfferedTool(name)


def closing_words(script: Script, answers: tuple[ToolAnswer, ...]) -> str:
    """The last words, with every tool result as the agent passed it on."""
    quotes = [f"[{answer.call_id}{' failed' if answer.is_error else ''}] {answer.text}" for answer in answers]
    return "\n".join([*quotes, script.closing])
