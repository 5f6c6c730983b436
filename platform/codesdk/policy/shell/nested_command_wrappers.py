"""Wrappers: commands that run other commands, and where the nested command starts."""

from __future__ import annotations

import re
from dataclasses import dataclass

SHELLS = frozenset(
    ["sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "ash", "rbash", "yash", "fish", "csh", "tcsh", "posh"]
)
ARGUMENTS_AS_SCRIPT = frozenset(["eval", "ssh", "watch", "parallel", "hyperfine"])
"""Commands whose operands are joined to a shell script."""
EVALUATORS = frozenset(
    [
        "let",
        "read",
        "printf",
        "test",
        "[",
        "[[",
        "declare",
        "typeset",
        "local",
        "export",
        "readonly",
        "unset",
        "mapfile",
        "readarray",
        "wait",
        "getopts",
    ]
)
"""Builtins that evaluate array subscripts in their arguments, so a quoted `a[$(id)]` runs `id`."""
ASSIGNED_SCRIPT = re.compile(
    r"(.*_)?(PAGER|EDITOR|VISUAL|BROWSER|SHELL|.*COMMAND|CMD|EXTERNAL_DIFF|ASKPASS|SSH|PROXY)|PS[0-4]|BASH_ENV|ENV"
)
"""Variables whose value is run by some program or the shell itself."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How to parse a wrapper's own arguments."""

    values: frozenset[str] = frozenset()
    """Options that take the next word as their value."""
    bare: frozenset[str] = frozenset()
    """Options without a value. For any option not listed, both readings are tried."""
    operands: int = 0
    """Number of operands before the nested command."""
    assignments: bool = False
    script: frozenset[str] = frozenset()
    """Options whose value is a shell script."""
    queries: frozenset[str] = frozenset()
    """Options that make the wrapper run nothing."""
    subcommands: frozenset[str] = frozenset()
    """First operands that make it a wrapper (`uv run`); any other runs no nested command."""
    inputs: bool = False
    """Adds arguments from standard input or found files."""


def _wrapper(
    values: str = "",
    bare: str = "",
    operands: int = 0,
    *,
    assignments: bool = False,
    script: str = "",
    queries: str = "",
    subcommands: str = "",
    inputs: bool = False,
) -> Wrapper:
    sets = (frozenset(text.split()) for text in (values, bare, script, queries, subcommands))
    value_set, bare_set, script_set, query_set, subcommand_set = sets
    return Wrapper(value_set, bare_set, operands, assignments, script_set, query_set, subcommand_set, inputs)


_RUN = _wrapper(
    "-p --python --with --env-file --directory --project -n --name --prefix -e -C",
    "-q -v",
    subcommands="run exec x dlx",
)

WRAPPERS: dict[str, Wrapper] = {
    "env": _wrapper("-u --unset -C --chdir", "-i -0 -v - --ignore-environment --null --debug", assignments=True, script="-S --split-string"),
    "timeout": _wrapper("-s --signal -k --kill-after", "--foreground --preserve-status -v --verbose -f -p", 1),
    "gtimeout": _wrapper("-s --signal -k --kill-after", "--foreground --preserve-status -v --verbose", 1),
    "nice": _wrapper("-n --adjustment"),
    "nohup": _wrapper(),
    "setsid": _wrapper(bare="-c -f -w --ctty --fork --wait"),
    "stdbuf": _wrapper("-i -o -e --input --output --error"),
    "time": _wrapper("-f --format -o --output", "-p -v -a -q", assignments=True),
    "command": _wrapper(bare="-p", queries="-v -V"),
    "builtin": _wrapper(),
    "exec": _wrapper("-a", "-c -l"),
    "coproc": _wrapper(assignments=True),
    # tree-sitter reports reserved words as commands where it does not know the construct around them (`coproc`).
    **dict.fromkeys(("then", "do", "else", "elif", "if", "while", "until", "{", "!"), _wrapper(assignments=True)),
    "noglob": _wrapper(),
    "nocorrect": _wrapper(),
    "xargs": _wrapper(
        # --replace, --max-lines and --eof have their value after `=` or none: both readings are tried.
        "-I -n -P -L -s -d -E -a --arg-file --delimiter --max-args --max-procs --max-chars --process-slot-var",
        "-0 -r -t -p -x -o --null --no-run-if-empty --verbose --interactive --exit --open-tty -i -l -e",
        inputs=True,
    ),
    "ionice": _wrapper("-c -n --class --classdata", "-t"),
    "chrt": _wrapper("-T -P -D", "-f -r -o -b -i -d -R -a", 1),
    "taskset": _wrapper(bare="-a -c --cpu-list", operands=1),
    "prlimit": _wrapper("-p --pid -o --output"), "choom": _wrapper("-n --adjust"),
    "cpulimit": _wrapper("-l -p -P -e --limit --pid --path --exe", "-b -f -z -i -v -q"),
    **dict.fromkeys(("setarch", "linux32", "linux64", "i386", "i686", "x86_64", "uname26"), _wrapper()),
    "numactl": _wrapper("-i -m -N -C -p --interleave --membind --cpunodebind --physcpubind --preferred"),
    "sudo": _wrapper("-u -g -h -p -C -D -R -T -U -r -t --user --group --host --prompt --chdir --chroot", "-n -E -H -S -k -A -b -i -s", assignments=True),
    "doas": _wrapper("-u -C -a", "-n -s -L"), "pkexec": _wrapper("--user"),
    "gosu": _wrapper(operands=1), "su-exec": _wrapper(operands=1), "chpst": _wrapper("-u -U -b -/ -e -n -l -L -m -d -o -p -f -c -r -t"),
    "tini": _wrapper("-p -e", "-s -w -g -v"), "dumb-init": _wrapper("-r --rewrite", "-c -v"),
    "faketime": _wrapper("-f", "-m", 1), "eatmydata": _wrapper(),
    "su": _wrapper("-g -G -s -w --shell --group", "- -l --login -m -p", 999, script="-c --command"),
    "runuser": _wrapper("-u -g -G --user --group", "- -l", script="-c --command"),
    "setpriv": _wrapper("--reuid --regid --groups --inh-caps --ambient-caps --bounding-set --securebits", "--clear-groups --no-new-privs"),
    "capsh": _wrapper(),
    "chroot": _wrapper("--userspec --groups", "--skip-chdir", 1),
    "unshare": _wrapper("-S -G -R -w --setuid --setgid --root --wd", "-r -n -m -p -f -u -i -U -C --fork --map-root-user"),
    "nsenter": _wrapper("-t --target -S -G --setuid --setgid", "-a -m -u -i -n -p -U -C -r -w"),
    "strace": _wrapper("-o -e -p -s -u -a -E -I -O -P -S -X -b", "-f -ff -c -C -q -qq -t -tt -T -v -y -yy -x -xx -k"),
    "ltrace": _wrapper("-o -e -p -s -u -a -l -n", "-f -c -C -S -t -T"),
    "gdb": _wrapper("-ex -x -d", "-q -batch --batch --args -args"),
    "valgrind": _wrapper(),
    "perf": _wrapper("-e -o -p -F -g", subcommands="stat record trace"),
    "flock": _wrapper("-w -E --timeout --conflict-exit-code", "-n -x -s -e -u -o -F --nonblock --exclusive --shared", 1, script="-c --command"),
    "script": _wrapper("-t -T -I -O -B -o -m", "-q -a -e -f", 999, script="-c --command"),
    "busybox": _wrapper(),
    "toybox": _wrapper(),
    "unbuffer": _wrapper(bare="-p"),
    "fakeroot": _wrapper("-l -s -i -b", "-u"),
    "proot": _wrapper("-r -b -q -w -R -S", "-0"),
    "firejail": _wrapper(),
    "bwrap": _wrapper(
        "--chdir --proc --dev --tmpfs --dir --uid --gid --hostname --unsetenv --seccomp --perms --size",
        "--unshare-all --unshare-net --unshare-pid --unshare-ipc --unshare-user --die-with-parent --new-session --clearenv --share-net",
    ),
    "systemd-run": _wrapper("-p --property --unit --slice -M -H --uid --gid -E --setenv", "--user --scope --wait --pipe -q -t -P -d"),
    "dbus-run-session": _wrapper(bare="--"),
    "xvfb-run": _wrapper("-n -s -e -f -p -w", "-a -l"),
    "start-stop-daemon": _wrapper("-u -p -n -c -g -d -x --user --pidfile --name --chuid --group --chdir --exec", "-S -K -b --start --background"),
    "rlwrap": _wrapper(),
    "catchsegv": _wrapper(),
    "direnv": _wrapper(operands=1, subcommands="exec"),
    "ld.so": _wrapper(), "ld-linux-x86-64.so.2": _wrapper(), "ld-linux.so.2": _wrapper(),
    "npx": _wrapper("-p --package", "-y --yes -q --quiet --no", script="-c --call"),
    "bunx": _wrapper(), "uvx": _wrapper("--from --with -p --python"), "pipx": _wrapper("--spec", subcommands="run"),
    "uv": _RUN, "poetry": _RUN, "pipenv": _RUN, "hatch": _RUN, "pdm": _RUN, "rye": _RUN, "conda": _RUN, "mamba": _RUN,
    "micromamba": _RUN, "bundle": _RUN, "npm": _wrapper("--prefix --loglevel -w --workspace", "-y --yes", subcommands="exec x", script="-c --call"),
    "pnpm": _wrapper("-C --dir --filter", subcommands="exec dlx"), "yarn": _wrapper("--cwd", subcommands="exec dlx"),
    "sshpass": _wrapper("-p -f -d -P", "-e -v"),
    "torsocks": _wrapper(), "proxychains": _wrapper("-f", "-q"), "proxychains4": _wrapper("-f", "-q"),
    "doppler": _RUN, "dotenv": _wrapper("-f", subcommands="run"), "entr": _wrapper(bare="-c -d -r -s -n -p -a -z"),
}  # fmt: skip

# Options of other commands whose value is run, directly or by a shell.
SCRIPT_OPTIONS: dict[str, frozenset[str]] = {
    "git": frozenset(["--exec", "-x", "--upload-pack", "--receive-pack", "--extcmd", "--open-files-in-pager", "--tree-filter", "--index-filter", "--msg-filter", "--env-filter", "--commit-filter"]),
    "rg": frozenset(("--pre", "--hostname-bin")),
    "sort": frozenset(("--compress-program",)),
    "tar": frozenset(["--to-command", "--use-compress-program", "-I", "-F", "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command", "--checkpoint-action"]),
    "man": frozenset(("-P", "--pager", "-H", "--html")),
    "rsync": frozenset(("-e", "--rsh", "--rsync-path")),
    "scp": frozenset(("-S",)),
    "bat": frozenset(("--pager",)), "ag": frozenset(("--pager",)), "ack": frozenset(("--pager",)),
    "split": frozenset(("--filter",)),
    "go": frozenset(("-exec", "-toolexec", "-vettool")),
    "mapfile": frozenset(("-C",)), "readarray": frozenset(("-C",)), "hash": frozenset(("-p",)),
    "compgen": frozenset(("-C", "-W", "-F")), "complete": frozenset(("-C", "-W", "-F")),
    "fzf": frozenset(("--preview", "--bind", "--execute")),
}  # fmt: skip

AWKS = frozenset(["awk", "gawk", "mawk", "nawk", "original-awk"])
