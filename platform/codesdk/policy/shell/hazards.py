"""Options that turn a harmless command into one that runs or writes something: no `...` of an allow rule carries them.

Whole kinds, not known exploits: for each command every documented way to run a program, load code or write a file through
an argument. A word that the rule spells out is the author's decision; `trust_arguments: true` turns the table off for a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from codesdk.policy.shell.brackets import evaluated
from codesdk.policy.shell.checks import (
    assigned,
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
from codesdk.policy.shell.options import Found, Options, dangerous_options
from codesdk.policy.shell.words import Word
from codesdk.policy.shell.wrappers import AWKS, EVALUATORS, SHELLS, WRAPPERS


@dataclass(frozen=True, slots=True)
class Hazards:
    """What to look for in one command's arguments."""

    options: Options | None = None
    check: Callable[[Sequence[Word]], Found] | None = None
    values: bool = False
    """The check knows what to make of a variable's value; elsewhere each is dangerous, for it may be any argument."""
    whole: bool = False
    """The command runs or interprets its arguments: every one of them is dangerous."""


def hazards(name: str, words: Sequence[Word]) -> Iterator[int]:
    """Indexes into `words` of arguments that make the command do more than its name says."""
    entry = TABLE.get(name)
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


def _o(
    long: str = "",
    short: str = "",
    values: str = "",
    *,
    abbreviated: bool = True,
    single_dash: bool = False,
    harmless: str = "",
) -> Options:
    return Options(tuple(long.split()), short, values, abbreviated, single_dash, tuple(harmless.split()))


_WHOLE = Hazards(whole=True)
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

TABLE: dict[str, Hazards] = {
    **dict.fromkeys((*SHELLS, *(set(WRAPPERS) - {"npm", "yarn", "pnpm", "bundle", "poetry", "uv", "conda"}), *_INTERACTIVE, *_EVALUATING), _WHOLE),
    **dict.fromkeys(("eval", "ssh", "watch", "parallel", "hyperfine"), _WHOLE),
    **{name: Hazards(check=awk_program) for name in AWKS},
    **{name: Hazards(check=subscripts) for name in EVALUATORS - {"printf", *_EVALUATING}},
    **{name: Hazards(check=evaluated, values=True) for name in ("test", "[", "[[")},
    "command": Hazards(check=command_query, values=True),
    "printf": Hazards(check=printf),
    "find": Hazards(check=find), "gfind": Hazards(check=find),
    "sed": Hazards(check=sed_script), "gsed": Hazards(check=sed_script),
    "tar": Hazards(
        _o("--checkpoint-action --to-command --use-compress-program --info-script --new-volume-script --rmt-command --rsh-command --absolute-names --index-file --volno-file --listed-incremental", "P", "fCbTXVNHKLIgF", harmless="--list"),
        tar,
    ),
    "git": Hazards(check=git),
    "rg": Hazards(_o("--pre --hostname-bin --search-zip", "z", "ABCEMTdefgjmrt", abbreviated=False)),
    "sort": Hazards(_o("--compress-program --output", "o", "ktST")),
    "man": Hazards(_o("--pager --html --gxditview --config-file --preprocessor --troff-device --prompt --local-file", "PHXCpTrl", "mMsSeLRE")),
    "date": Hazards(_o("--set", "s", "dfrI"), date),
    "hostname": Hazards(_o("--file --boot", "Fb"), second_operand),
    "uniq": Hazards(check=second_operand), "xxd": Hazards(_o("-r -revert", "r", single_dash=False), second_operand),
    "tree": Hazards(_o("", "oR", "", abbreviated=False)),  # values stand in the next word, and the cluster goes on
    "file": Hazards(_o("--compile --uncompress --uncompress-noreport --magic-file --files-from", "CzZm", "eFfP")),
    "split": Hazards(_o("--filter")), "shuf": Hazards(_o("--output --random-source", "o", "nei")),
    "diff": Hazards(_o("--paginate --output", "l", "ILUCFWDx")), "sdiff": Hazards(_o("--output --diff-program", "o", "IwW")),
    "yq": Hazards(_o("--inplace --in-place --split-exp", "is", "oIp", abbreviated=False)),
    "bat": Hazards(_o("--pager --config-file --map-syntax", "", "", abbreviated=False)),
    "fd": Hazards(_o("--exec --exec-batch", "xX", "deEtSo", abbreviated=False)), "fdfind": Hazards(_o("--exec --exec-batch", "xX", "deEtSo", abbreviated=False)),
    "ag": Hazards(_o("--pager --search-zip --workers", "z", "ABCGgmp")), "ack": Hazards(_o("--pager --ackrc --output --env", "", "ABCmg")),
    "fzf": Hazards(_o("--preview --bind --execute --listen", "", "")),
    "make": Hazards(_o("--eval --file --makefile --include-dir --directory --environment-overrides", "fIEeC", "jloW"), assigned),
    "gmake": Hazards(_o("--eval --file --makefile --include-dir --directory --environment-overrides", "fIEeC", "jloW"), assigned),
    "npm": Hazards(_o("--script-shell --prefix --userconfig --globalconfig --node-options --git", "g", "", abbreviated=False)),
    "cargo": Hazards(_o("--config --manifest-path --target-dir --out-dir --artifact-dir --root", "CZ", "pjF", abbreviated=False)),
    "go": Hazards(_o("-exec -toolexec -vettool -overlay -o -C -modfile -pkgdir --exec --toolexec --vettool --overlay --o --C --modfile", abbreviated=False, single_dash=True)),
    "rsync": Hazards(_o("--rsh --rsync-path --log-file --write-batch --partial-dir --backup-dir --temp-dir", "eT")),
    "scp": Hazards(_o("", "SoFDJ", "cilP")),
    "curl": Hazards(_o("--output --output-dir --remote-name --remote-name-all --remote-header-name --config --upload-file --form --data --data-binary --data-raw --data-urlencode --json --dump-header --cookie-jar --trace --trace-ascii --stderr --proxy --preproxy --netrc-file --engine --libcurl --hsts --alt-svc --etag-save --url-query", "oOJKTFdDcxE", "AHbeumrtUwXyYzP", abbreviated=True)),
    "wget": Hazards(_o("--execute --use-askpass --output-document --output-file --append-output --directory-prefix --config --post-file --post-data --body-file --save-cookies --rejected-log --warc-file", "eOoaPi", "UtTQ")),
    "zip": Hazards(_o("--unzip-command --test --output-file", "TO", "ixt")),
    "dmesg": Hazards(_o("--clear --read-clear --console-on --console-off --console-level", "CcDEn", "lfF")),
    "journalctl": Hazards(_o("--vacuum-size --vacuum-time --vacuum-files --rotate --flush --sync --relinquish-var --cursor-file", "", "nupbtSUog")),
    "sqlite3": Hazards(_o("-cmd -init -A --cmd --init", abbreviated=False, single_dash=True), dot_commands),
    "psql": Hazards(_o("--file --output --log-file", "foL", "chpUdv"), dot_commands),
    "xmllint": Hazards(_o("--shell --output --postvalid", "o")),
    "openssl": Hazards(_o("-out -engine -provider -provider-path -config", abbreviated=False, single_dash=True)),
    "jq": Hazards(_o("--from-file --rawfile --slurpfile", "fL", "", abbreviated=False)),
    "tcpdump": Hazards(_o("", "zwZW", "icrs")),
    "ip": Hazards(_o("-batch -b --batch", abbreviated=True, single_dash=True)),
    "env": _WHOLE,
}  # fmt: skip
