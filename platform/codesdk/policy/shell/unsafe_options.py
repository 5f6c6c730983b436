"""Unsafe arguments: options with which a harmless command runs programs or writes files. `...` never covers them.

Lists whole categories instead of known exploits: for each command, every documented way to run a program, load code or
write a file through an argument. Words that a rule spells out are the author's decision. `trust_arguments: true` disables
the check for a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from codesdk.policy.shell.conditional_expressions import evaluated_words
from codesdk.policy.shell.nested_command_wrappers import AWKS, EVALUATORS, SHELLS, WRAPPERS
from codesdk.policy.shell.options import Options, WordIndexes, dangerous_options
from codesdk.policy.shell.per_command_checks import (
    assigned_variables,
    awk_program,
    command_query,
    date,
    dot_commands,
    find,
    git,
    printf,
    second_operand,
    sed_script,
    subscripts,
    tar,
)
from codesdk.policy.shell.words import Word


@dataclass(frozen=True, slots=True)
class UnsafeArguments:
    """The unsafe arguments of one command."""

    options: Options | None = None
    check: Callable[[Sequence[Word]], WordIndexes] | None = None
    values: bool = False
    """The check handles unknown values itself. Otherwise any variable is unsafe, because it may be any argument."""
    whole: bool = False
    """The command runs or interprets its arguments, so all of them are unsafe."""


def unsafe_arguments(name: str, words: Sequence[Word]) -> Iterator[int]:
    """Yield the indexes of `words` that make the command do more than its name suggests."""
    entry = UNSAFE_BY_COMMAND.get(name)
    if entry is None:
        return
    if entry.whole:
        yield from range(1, len(words)) if len(words) > 1 else (0,)
        return
    if entry.options is not None:
        yield from dangerous_options(entry.options, words)
    if entry.check is not None:
        if not entry.values:
            yield from (at for at, word in enumerate(words) if word.dynamic)
        yield from entry.check(words)


def _options(
    long: str = "",
    short: str = "",
    values: str = "",
    *,
    abbreviated: bool = True,
    single_dash: bool = False,
    harmless: str = "",
) -> Options:
    return Options(tuple(long.split()), short, values, abbreviated, single_dash, tuple(harmless.split()))


_WHOLE = UnsafeArguments(whole=True)
_INTERACTIVE = [
    "less",
    "more",
    "most",
    "vi",
    "vim",
    "view",
    "nvim",
    "ex",
    "ed",
    "emacs",
    "nano",
    "pico",
    "joe",
    "mc",
    "gdb",
    "lldb",
    "ftp",
    "sftp",
    "telnet",
    "socat",
    "nc",
    "ncat",
    "netcat",
    "at",
    "batch",
    "crontab",
]
_EVALUATING = [
    "eval",
    "source",
    ".",
    "exec",
    "trap",
    "let",
    "read",
    "mapfile",
    "readarray",
    "enable",
    "hash",
    "complete",
    "compgen",
    "bind",
    "fc",
    "alias",
    "declare",
    "typeset",
]

UNSAFE_BY_COMMAND: dict[str, UnsafeArguments] = {
    **dict.fromkeys((*SHELLS, *(set(WRAPPERS) - {"npm", "yarn", "pnpm", "bundle", "poetry", "uv", "conda"}), *_INTERACTIVE, *_EVALUATING), _WHOLE),
    **dict.fromkeys(("eval", "ssh", "watch", "parallel", "hyperfine"), _WHOLE),
    **{name: UnsafeArguments(check=awk_program, values=True) for name in AWKS},
    **{name: UnsafeArguments(check=subscripts) for name in EVALUATORS - {"printf", *_EVALUATING}},
    **{name: UnsafeArguments(check=evaluated_words, values=True) for name in ("test", "[", "[[")},
    "command": UnsafeArguments(check=command_query, values=True),
    "printf": UnsafeArguments(check=printf, values=True),
    "find": UnsafeArguments(check=find, values=True), "gfind": UnsafeArguments(check=find, values=True),
    "sed": UnsafeArguments(check=sed_script, values=True), "gsed": UnsafeArguments(check=sed_script, values=True),
    "tar": UnsafeArguments(
        _options("--checkpoint-action --to-command --use-compress-program --info-script --new-volume-script --rmt-command --rsh-command --absolute-names --index-file --volno-file --listed-incremental", "P", "fCbTXVNHKLIgF", harmless="--list"),
        tar,
    ),
    "git": UnsafeArguments(check=git, values=True),
    "rg": UnsafeArguments(_options("--pre --hostname-bin --search-zip", "z", "ABCEMTdefgjmrt", abbreviated=False)),
    "sort": UnsafeArguments(_options("--compress-program --output", "o", "ktST")),
    "man": UnsafeArguments(_options("--pager --html --gxditview --config-file --preprocessor --troff-device --prompt --local-file", "PHXCpTrl", "mMsSeLRE")),
    "date": UnsafeArguments(_options("--set", "s", "dfrI"), date),
    "hostname": UnsafeArguments(_options("--file --boot", "Fb"), second_operand),
    "uniq": UnsafeArguments(check=second_operand), "xxd": UnsafeArguments(_options("-r -revert", "r", single_dash=False), second_operand),
    "tree": UnsafeArguments(_options("", "oR", "", abbreviated=False)),  # the value is the next word, and the cluster continues
    "file": UnsafeArguments(_options("--compile --uncompress --uncompress-noreport --magic-file --files-from", "CzZm", "eFfP")),
    "split": UnsafeArguments(_options("--filter")), "shuf": UnsafeArguments(_options("--output --random-source", "o", "nei")),
    "diff": UnsafeArguments(_options("--paginate --output", "l", "ILUCFWDx")), "sdiff": UnsafeArguments(_options("--output --diff-program", "o", "IwW")),
    "yq": UnsafeArguments(_options("--inplace --in-place --split-exp", "is", "oIp", abbreviated=False)),
    "bat": UnsafeArguments(_options("--pager --config-file --map-syntax", "", "", abbreviated=False)),
    "fd": UnsafeArguments(_options("--exec --exec-batch", "xX", "deEtSo", abbreviated=False)), "fdfind": UnsafeArguments(_options("--exec --exec-batch", "xX", "deEtSo", abbreviated=False)),
    "ag": UnsafeArguments(_options("--pager --search-zip --workers", "z", "ABCGgmp")), "ack": UnsafeArguments(_options("--pager --ackrc --output --env", "", "ABCmg")),
    "fzf": UnsafeArguments(_options("--preview --bind --execute --listen", "", "")),
    "make": UnsafeArguments(_options("--eval --file --makefile --include-dir --directory --environment-overrides", "fIEeC", "jloW"), assigned_variables),
    "gmake": UnsafeArguments(_options("--eval --file --makefile --include-dir --directory --environment-overrides", "fIEeC", "jloW"), assigned_variables),
    "npm": UnsafeArguments(_options("--script-shell --prefix --userconfig --globalconfig --node-options --git", "g", "", abbreviated=False)),
    "cargo": UnsafeArguments(_options("--config --manifest-path --target-dir --out-dir --artifact-dir --root", "CZ", "pjF", abbreviated=False)),
    "go": UnsafeArguments(_options("-exec -toolexec -vettool -overlay -o -C -modfile -pkgdir --exec --toolexec --vettool --overlay --o --C --modfile", abbreviated=False, single_dash=True)),
    "rsync": UnsafeArguments(_options("--rsh --rsync-path --log-file --write-batch --partial-dir --backup-dir --temp-dir", "eT")),
    "scp": UnsafeArguments(_options("", "SoFDJ", "cilP")),
    "curl": UnsafeArguments(_options("--output --output-dir --remote-name --remote-name-all --remote-header-name --config --upload-file --form --data --data-binary --data-raw --data-urlencode --json --dump-header --cookie-jar --trace --trace-ascii --stderr --proxy --preproxy --netrc-file --engine --libcurl --hsts --alt-svc --etag-save --url-query", "oOJKTFdDcxE", "AHbeumrtUwXyYzP", abbreviated=True)),
    "wget": UnsafeArguments(_options("--execute --use-askpass --output-document --output-file --append-output --directory-prefix --config --post-file --post-data --body-file --save-cookies --rejected-log --warc-file", "eOoaPi", "UtTQ")),
    "zip": UnsafeArguments(_options("--unzip-command --test --output-file", "TO", "ixt")),
    "dmesg": UnsafeArguments(_options("--clear --read-clear --console-on --console-off --console-level", "CcDEn", "lfF")),
    "journalctl": UnsafeArguments(_options("--vacuum-size --vacuum-time --vacuum-files --rotate --flush --sync --relinquish-var --cursor-file", "", "nupbtSUog")),
    "sqlite3": UnsafeArguments(_options("-cmd -init -A --cmd --init", abbreviated=False, single_dash=True), dot_commands),
    "psql": UnsafeArguments(_options("--file --output --log-file", "foL", "chpUdv"), dot_commands),
    "xmllint": UnsafeArguments(_options("--shell --output --postvalid", "o")),
    "openssl": UnsafeArguments(_options("-out -engine -provider -provider-path -config", abbreviated=False, single_dash=True)),
    "jq": UnsafeArguments(_options("--from-file --rawfile --slurpfile", "fL", "", abbreviated=False)),
    "tcpdump": UnsafeArguments(_options("", "zwZW", "icrs")),
    "ip": UnsafeArguments(_options("-batch -b --batch", abbreviated=True, single_dash=True)),
    "env": _WHOLE,
}  # fmt: skip
