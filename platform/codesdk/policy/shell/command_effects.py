"""What a command can do, for the people who approve it: from a table of commands, subcommands and options. Pure.

No decision depends on it. A command that the table doesn't know has an unknown effect, and so has a known one with an
option or a variable that may make it do something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from codesdk.policy.shell.command_effect_table import ROWS, VALUED_OPTIONS, Row
from codesdk.policy.shell.commands import SimpleCommand
from codesdk.policy.shell.known_commands import known_commands
from codesdk.policy.shell.nested_command_wrappers import ARGUMENTS_AS_SCRIPT, SHELLS, WRAPPERS
from codesdk.policy.shell.nested_commands import nested_commands
from codesdk.policy.shell.variables import is_dangerous
from codesdk.policy.shell.words import Word


class CommandEffect(StrEnum):
    """One thing that a command can do."""

    DELETES = "deletes"
    OVERWRITES = "overwrites"
    WRITES = "writes"
    REWRITES_HISTORY = "rewrites-history"
    PUBLISHES = "publishes"
    CHANGES_REMOTE = "changes-remote"
    NETWORK = "network"
    INSTALLS = "installs"
    RUNS_CODE = "runs-code"
    OTHER_USER = "other-user"
    PERMISSIONS = "permissions"
    PROCESSES = "processes"
    READS = "reads"
    UNKNOWN = "unknown"


PHRASES = {
    CommandEffect.DELETES: "deletes files",
    CommandEffect.OVERWRITES: "overwrites files",
    CommandEffect.WRITES: "creates or changes files",
    CommandEffect.PUBLISHES: "publishes to a remote",
    CommandEffect.REWRITES_HISTORY: "rewrites history",
    CommandEffect.CHANGES_REMOTE: "changes another system",
    CommandEffect.INSTALLS: "installs packages",
    CommandEffect.NETWORK: "uses the network",
    CommandEffect.RUNS_CODE: "runs code from the workspace",
    CommandEffect.OTHER_USER: "runs as another user",
    CommandEffect.PERMISSIONS: "changes permissions",
    CommandEffect.PROCESSES: "ends processes",
    CommandEffect.READS: "only reads or prints",
    CommandEffect.UNKNOWN: "unknown effect",
}
"""In words, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class CommandEffects:
    """What one command can do."""

    command: SimpleCommand
    effects: frozenset[CommandEffect]
    decisive: tuple[int, ...] = ()
    """Indexes of the words, apart from command and subcommand, that add an effect."""

    @property
    def phrase(self) -> str:
        """The effects in words: `publishes to a remote, rewrites history (--force)`."""
        said = [PHRASES[effect] for effect in PHRASES if effect in self.effects]
        because = [_short(self.command.words[index].text) for index in self.decisive]
        return ", ".join(said) + (f" ({' '.join(because)})" if any(because) else "")


def command_effects(command: SimpleCommand) -> CommandEffects | None:
    """What a command itself can do. None if it only runs another command, which has effects of its own."""
    words = command.words
    if any(is_dangerous(name) for name, _ in command.assignments):
        return CommandEffects(command, frozenset((CommandEffect.UNKNOWN,)))
    if not words:
        return None
    first = words[0].text
    if not command.name:
        return CommandEffects(command, frozenset((CommandEffect.UNKNOWN,)))
    if "/" in first and not first.startswith(_SYSTEM_DIRECTORIES):
        return CommandEffects(command, frozenset((CommandEffect.RUNS_CODE,)), (0,))
    effects, decisive = _of_name(command.name, words)
    return CommandEffects(command, effects, decisive) if effects else None


def script_word(command: SimpleCommand) -> Word | None:
    """The script file that a command runs: `deploy.sh` of `sh deploy.sh`, `./deploy.sh` itself. None if it runs none."""
    found = command_effects(command)
    is_script = found is not None and found.effects == {CommandEffect.RUNS_CODE} and bool(found.decisive)
    return command.words[found.decisive[0]] if found is not None and is_script else None


def all_effects(commands: Iterable[SimpleCommand]) -> tuple[CommandEffects, ...]:
    """The effects of each of a line's commands, in order; those that say the same are listed once."""
    found: dict[tuple[str, ...], CommandEffects] = {}
    for command in commands:
        if (one := command_effects(command)) is not None:
            found.setdefault(tuple(word.text for word in command.words), one)
    return tuple(found.values())


_SYSTEM_DIRECTORIES = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/")
_NOT_A_SCRIPT = frozenset(("-c", "-m", "-e", "--eval", "-"))
_INTERPRETER = re.compile(r"(python|pypy|node|nodejs|deno|ruby|perl|php|lua|Rscript|tsx|ts-node|bun)[0-9.]*")
_SWITCHES_USER = frozenset(("sudo", "doas", "su", "runuser", "pkexec", "gosu", "su-exec", "setpriv"))
_DECLARES = frozenset(("export", "declare", "typeset", "readonly", "local"))
_WRAPPER_EFFECTS = {
    "ssh": (CommandEffect.NETWORK,),
    **dict.fromkeys(("npx", "bunx", "uvx", "pipx"), (CommandEffect.INSTALLS,)),
}
_SAME_AS = {"bsdtar": "tar", "gtar": "tar", "gsed": "sed", "gfind": "find", "fdfind": "fd"}
_RUNS_ANOTHER = frozenset(("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"))
_HARMLESS = {"git": frozenset(("-C",)), "find": _RUNS_ANOTHER, "fd": _RUNS_ANOTHER}
"""Options that policy is careful about and that add no effect: the command that `find -exec` runs has its own."""
_LIMITED = frozenset((CommandEffect.READS, CommandEffect.NETWORK))
_MAX_SHOWN = 40


def _of_name(name: str, words: Sequence[Word]) -> tuple[frozenset[CommandEffect], tuple[int, ...]]:
    """The effects and the decisive words of a command that is looked for on the PATH."""
    if name in SHELLS or name in ("source", ".") or _INTERPRETER.fullmatch(name):
        return _of_interpreter(name, words)
    if name in _SWITCHES_USER:
        return frozenset((CommandEffect.OTHER_USER,)), ()
    if name in _DECLARES:
        unsafe = any(is_dangerous(word.text.partition("=")[0]) or not word.text for word in words[1:])
        return frozenset((CommandEffect.UNKNOWN if unsafe else CommandEffect.READS,)), ()
    is_wrapper = name in WRAPPERS or name in ARGUMENTS_AS_SCRIPT
    if is_wrapper and any(inner.words or inner.script for inner in nested_commands(name, words)):
        return frozenset(_WRAPPER_EFFECTS.get(name, ())), ()
    plain = re.sub(r"^pip[0-9.]+$", "pip", name)
    return _of_table(_SAME_AS.get(plain, plain), words)


def _of_interpreter(name: str, words: Sequence[Word]) -> tuple[frozenset[CommandEffect], tuple[int, ...]]:
    operand = next((index for index, word in enumerate(words[1:], 1) if word.text[:1] not in ("-", "+")), 0)
    options = [word.text for word in words[1 : operand or len(words)]]
    if options and not operand and set(options) <= {"--version", "-V", "--help", "-v"}:
        return frozenset((CommandEffect.READS,)), ()
    if name in SHELLS and any(re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", option) for option in options):
        return frozenset(), ()  # the commands of its script are listed
    if options[-1:] == ["-m"] and operand and words[operand].text in ROWS:
        effects, decisive = _of_table(words[operand].text, words[operand:])
        return effects, tuple(index + operand for index in decisive)
    inline = any(option in _NOT_A_SCRIPT or option.startswith("-c") for option in options)
    if not operand or inline or not words[operand].literal:
        return frozenset((CommandEffect.UNKNOWN,)), ()
    return frozenset((CommandEffect.RUNS_CODE,)), (operand,)


def _of_table(name: str, words: Sequence[Word]) -> tuple[frozenset[CommandEffect], tuple[int, ...]]:
    rows = _fitting_rows(name, words)
    found = [(row, tuple(_option_indexes(name, words, row.options))) for row in rows]
    chosen = [row for row, indexes in found if indexes]
    # An option such as `--dry-run` takes the place of what the command does without it.
    if all(row.effects != (CommandEffect.READS,) for row in chosen):
        chosen += [row for row in rows if not row.options]
    effects = {CommandEffect(effect) for row in chosen for effect in row.effects} or {CommandEffect.UNKNOWN}
    decisive = [index for _, indexes in found for index in indexes]
    if len(effects) > 1:
        effects.discard(CommandEffect.READS)
    if CommandEffect.OVERWRITES in effects:
        effects.discard(CommandEffect.WRITES)
    unclear = [index for index in _unclear(name, words, effects) if index not in decisive]
    if unclear:
        effects = (effects - {CommandEffect.READS}) | {CommandEffect.UNKNOWN}
    return frozenset(effects), tuple(dict.fromkeys([*decisive, *unclear[:1]]))


def _fitting_rows(name: str, words: Sequence[Word]) -> list[Row]:
    """The rows with the longest subcommand that the command has; none if it is only known when it runs."""
    path = [words[index] for index in _operands(name, words)][:2]
    for length in range(len(path), -1, -1):
        subcommand = tuple(word.text for word in path[:length])
        rows = [row for row in ROWS.get(name, ()) if row.subcommand == subcommand]
        if rows:
            return rows if all(word.literal for word in path[:length]) else []
    return []


def _unclear(name: str, words: Sequence[Word], effects: set[CommandEffect]) -> Iterator[int]:
    """Indexes of words with which a command may do more than the table has."""
    known = known_commands().find(name)
    if known is None or known.arguments is not None or not effects <= _LIMITED:
        return
    harmless = _HARMLESS.get(name, ())
    unsafe = known_commands().unsafe_arguments(name, words)
    yield from (found.at for found in unsafe if words[found.at].text not in harmless)


def _operands(name: str, words: Sequence[Word]) -> list[int]:
    """Indexes of the operands: words that are neither options nor the value of an option in `VALUED_OPTIONS`."""
    valued = VALUED_OPTIONS.get(name, frozenset())
    found: list[int] = []
    index = 1
    while index < len(words):
        text = words[index].text
        if text in valued:
            index += 1
        elif not text.startswith(("-", "+")) or text in ("-", "--"):
            found.append(index)
        index += 1
    return found


def _option_indexes(name: str, words: Sequence[Word], options: frozenset[str]) -> Iterator[int]:
    """Indexes of the words that are, or contain, one of these options: `-rf` has `-f`, `--force=yes` is `--force`.

    `+` and `:` stand for any word that begins with them: `git push origin +main` is forced, `:main` deletes the branch.
    """
    if not options:
        return
    valued = VALUED_OPTIONS.get(name, frozenset())
    letters = frozenset(option[1] for option in options if len(option) == 2 and option[0] == "-")  # noqa: PLR2004 (a dash and a letter)
    takes = frozenset(option[1] for option in valued if len(option) == 2)  # noqa: PLR2004
    skip = False
    for index, word in enumerate(words[1:], 1):
        text = word.text
        if skip:
            skip = False
            continue
        if text == "--":
            return
        skip = text in valued
        bare = name == "tar" and index == 1 and not text.startswith("-")
        if text.partition("=")[0] in options or (text[:1] in ("+", ":") and text[0] in options):
            yield index
        elif text.startswith("--"):
            if any(option.startswith(text.partition("=")[0]) for option in options if len(text) > 4):  # noqa: PLR2004
                yield index
        elif (text.startswith("-") or bare) and _in_cluster(text if bare else text[1:], letters, takes, bare=bare):
            yield index


def _in_cluster(text: str, letters: frozenset[str], takes: frozenset[str], *, bare: bool) -> bool:
    for letter in text:
        if letter in letters:
            return True
        if letter in takes and not bare:
            return False
    return False


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
