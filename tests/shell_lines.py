"""Generates thousands of shell lines and records what a real shell runs of each, with stubs for all programs."""

from __future__ import annotations

import json
import random

PROGRAMS = ("alpha", "beta", "gamma", "rm", "git", "delta-2")
WRAPPERS = (
    "env", "env A=1", "env -u HOME", "nice", "nice -n 5", "timeout 5", "timeout -k 1 5", "nohup", "command", "exec",
    "builtin eval", "eval", "time", "!", "xargs -n1", "stdbuf -o0", "setsid", "env -i PATH=$PATH", "xargs",
    "nice -5", "nice -n", "nice --adjustment=5", "timeout -s KILL 5", "timeout --signal=KILL 5s", "timeout -k 5", "timeout 5 --",
    "timeout -sKILL 5", "timeout $X", "timeout alpha", "stdbuf -o L -eL", "stdbuf --output=0", "time -p", "command --", "command -p",
    "command -v", "env --", "env -", "env A=1 B=2", "env -S", "nice --", "xargs -r", "xargs $X", "xargs -?", "time $X",
)  # fmt: skip
"""What runs the words after it; each is really there in the sandbox."""
INPUTS = (
    "-I{}", "-I {}", "-I rm", "-I alpha", "-I a", "-I {} -n1", "-n1 -I {}", "-I {} -L1", "-I % -I {}", "-n 1", "-n1 -r", "-L 1", "-0", "-d l",
    "-d alpha", "-P2", "-x -n2", "-i", "-i{}", "-l", "-E alpha", "-e", "-t", "-s 99", "--max-args=1", "--replace={}", "--replace", "-a x", "-I",
    "-I *", "-n", "--", "-0n1", "--verbose", "--process-slot-var=PATH", "-I ''", "-I $X", "-n$X",
)  # fmt: skip
"""Options of xargs, each with words on its standard input: names of programs, options, both."""
ARGUMENTS = (
    "x", "-f", "--force", "'a b'", '"a b"', "a\\ b", "$'a\\tb'", '"$HOME"', "$X", "${X:-y}", "*.none", "~", "--", "1",
    "{a,b}", "$((1+1))", "{}", "%", "x{}", '"$X"', '"a $X"', "$?", "${X}", "-$X", "'$(alpha)'", '"`beta`"', "#no", "a#b", "'rm'", "rm",
)  # fmt: skip


def line(rng: random.Random, depth: int = 3) -> str:
    """One shell line; deep ones nest every construct that runs commands."""
    return _list(rng, depth)


def _list(rng: random.Random, depth: int) -> str:
    count = rng.choice((1, 1, 1, 2, 2, 3))
    parts = [_pipeline(rng, depth) for _ in range(count)]
    return "".join(
        part + (rng.choice((" ; ", " && ", " || ", "\n", ";", "&&", " & ", " |\n", "\\\n;")) if at < count - 1 else "")
        for at, part in enumerate(parts)
    )


def _pipeline(rng: random.Random, depth: int) -> str:
    return rng.choice((" | ", "|", " |& ")).join(_command(rng, depth) for _ in range(rng.choice((1, 1, 1, 2))))


def _command(rng: random.Random, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.45:
        return _simple(rng, depth)
    inner = lambda: _list(rng, depth - 1)  # noqa: E731
    return rng.choice(_COMPOUND)(rng, inner)


_COMPOUND = (
    lambda _r, inner: f"( {inner()} )",
    lambda _r, inner: f"{{ {inner()} ; }}",
    lambda _r, inner: f"if {inner()}\nthen {inner()}\nelse {inner()}\nfi",
    lambda _r, inner: f"for v in a b; do {inner()}\ndone",
    lambda _r, inner: f"while {inner()}\ndo {inner()}\nbreak; done",
    lambda _r, inner: f"until {inner()}\ndo break; done",
    lambda _r, inner: f"case x in y) {inner()}\n;; *) {inner()}\n;; esac",
    lambda _r, inner: f"f() {{ {inner()}\n}}\nf",
    lambda _r, inner: f"function g {{ {inner()}\n}}; g x",
    lambda _r, inner: f"V=$({inner()}) alpha",
    lambda _r, inner: f"V=`{_tickless(inner())}`",
    lambda _r, inner: f'beta "$({inner()})" x',
    lambda _r, inner: f"beta <({inner()})",
    lambda _r, inner: f"alpha > >({inner()})",
    lambda _r, inner: f"[[ -n $({inner()}) ]]",
    lambda _r, inner: f"(( $({inner()}\n) + 1 ))",
    lambda _r, inner: f"echo ${{Y:-$({inner()})}}",
    lambda _r, inner: f"echo ${{a[$({inner()})0]}}",
    lambda _r, inner: f"bash -c {_quoted(inner())}",
    lambda _r, inner: f"sh -c {_quoted(inner())}",
    lambda _r, inner: f"bash -lc {_quoted(inner())} x",
    lambda _r, inner: f"eval {_quoted(inner())}",
    lambda _r, inner: f"bash <<'EOF'\n{inner()}\nEOF\n",
    lambda _r, inner: f"alpha <<EOF\n$({inner()})\nEOF\n",
    lambda _r, inner: f"bash <<< {_quoted(inner())}",
    lambda _r, inner: f"echo {_quoted(inner())} | sh",
    lambda _r, inner: f"trap {_quoted(inner())} EXIT",
    lambda _r, inner: f"printf '%s\\n' x | while read v; do {inner()}\ndone",
    lambda _r, inner: f"find . -maxdepth 0 -exec sh -c {_quoted(inner())} \\;",
    lambda _r, inner: f"coproc {{ {inner()}\n}}; wait",
    lambda _r, inner: f"time {{ {inner()}\n}}",
    lambda _r, inner: f"! {{ {inner()}\n}}",
    lambda _r, inner: f"source <({inner()})",
    lambda r, inner: f"{r.choice(_TESTS)} && {inner()}",
    lambda r, inner: f"if {r.choice(_TESTS)}; then {inner()}\nfi",
    lambda _r, inner: f'for v in $({inner()}); do alpha "$v"; done',
    lambda _r, inner: f"printf '%s\\n' x | while IFS= read -r v; do alpha $v; {inner()}\ndone",
    lambda _r, inner: f"while read -r v; do {inner()}\ndone < <(echo x; {inner()})",
    lambda _r, inner: f"v=$({inner()}); alpha $v",
    lambda _r, inner: f'export W="$({inner()})"; alpha',
    lambda _r, inner: f'alpha "a$(echo ")"; {inner()})b"',
    lambda _r, inner: f'alpha "$(echo \'a)\' "b $({inner()})")"',
    lambda _r, inner: f"{{ {inner()} ; }} & wait",
    lambda r, inner: f"find . -maxdepth 0 -exec {_program(r)} {{}} \\; -exec alpha x {{}} + ; {inner()}",
    lambda r, inner: (
        f"find . -maxdepth 1 -name alpha -print0 | xargs -0 {_program(r)} {r.choice(ARGUMENTS)}; {inner()}"
    ),
    lambda r, inner: f"alpha {r.choice(_BRACES)} | {_program(r)} {r.choice(_BRACES)}; {inner()}",
    lambda r, inner: f"for v in {r.choice(_BRACES)}; do {r.choice(_LOOPED)} ; {inner()}\ndone",
    lambda _r, inner: f"alpha 2> >({inner()})",
    lambda r, inner: f"for v in {r.choice(ARGUMENTS)} rm alpha; do {r.choice(_LOOPED)} ; {inner()}\ndone",
)
_BRACES = (
    "{a,b}", "x{a,b}y", "{1..3}", "{a..c}", "{rm,x}", "{alpha,beta}", "{-f,x}", "-{a,b}", "{a,{b,c}d}", "{a,b}{c,d}", "a{,b}", "{,a}", "{a}",
    "{a,b", "{a,b}}", "{{a,b}}", "{}", "{1..1}", "{3..1}", "{01..03}", "{1..9..4}", "{a,$X}", "{'a',b}", "{a\\,b}", "{a..}", "{-1..1}",
)  # fmt: skip
_TESTS = (
    "[ -e alpha ]", '[ -n "$HOME" ]', "[ \"$X\" = '' ]", "[[ -n $HOME ]]", "test -e alpha", "! [ -e none ]", "[ -v 'a[$(alpha)]' ]",
    "[[ 'a[$(rm)0]' -eq 0 ]]", "[[ $HOME == /* ]]", "test -v 'a[`rm`]'", "[ -e * ]", "[ -e alpha -a -v 'a[$(rm)]' ]", "[[ -e alpha ]]",
)  # fmt: skip
_LOOPED = (
    "$v",
    '"$v"',
    "alpha $v",
    'alpha "$v"',
    "nice $v",
    "env $v",
    "alpha x$v",
    "xargs $v",
    "timeout 5 $v x",
    "command $v",
)


def _simple(rng: random.Random, depth: int) -> str:
    if rng.random() < 0.06:
        tail = " ".join(rng.choice(ARGUMENTS) for _ in range(rng.choice((0, 1, 2))))
        return f"printf '%s\\n' rm -f 'alpha rm' | xargs {rng.choice(INPUTS)} {_program(rng)} {tail}"
    words = [_program(rng)]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        words.insert(0, rng.choice(WRAPPERS))
    words += [
        rng.choice(ARGUMENTS) if depth <= 0 or rng.random() < 0.9 else f"$({_list(rng, depth - 1)})"
        for _ in range(rng.choice((0, 1, 1, 2)))
    ]
    if rng.random() < 0.1:
        words.insert(0, rng.choice(("A=1", "A='x y' B=2", "X=", "A=$X")))
    if rng.random() < 0.12:
        words.append(rng.choice(("> out", "2>&1", "< /dev/null", ">> out 2>/dev/null", "&> out", "<<< x", "2>&1 >out")))
    return " ".join(words)


def _program(rng: random.Random) -> str:
    name = "alpha" if rng.random() < 0.4 else rng.choice(PROGRAMS)
    how = rng.random()
    if how < 0.7:
        return name
    quoted = (
        f"'{name}'", f'"{name}"', f"\\{name}", f"{name[:1]}''{name[1:]}", f'{name[:1]}"{name[1:]}"', f"/stubs/{name}",
        f"$'{name}'", f"{name[:1]}\\{name[1:]}", f"./{name}", f"{name[:-1]}[{name[-1:]}]", f"$(echo {name})",
        f"{{{name},x}}", f"${{Z:-{name}}}",
    )  # fmt: skip
    return rng.choice(quoted)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _tickless(text: str) -> str:
    return text.replace("\\", "\\\\").replace("`", "\\`")


HARNESS = r"""
import json, os, shutil, subprocess, sys, time
REAL = {name: shutil.which(name) for name in ("env", "nice", "timeout", "nohup", "xargs", "stdbuf", "setsid", "bash", "sh", "find")}
def stage(root):
    # A place for each line: what it leaves running in the background writes into no other line's log.
    os.makedirs(f"{root}/stubs")
    os.makedirs(f"{root}/place")
    # One write for each run: appends of programs that run at once must not mix.
    stub = "#!/bin/dash\ns=${0##*/}; for a in \"$@\"; do s=$s\001$a; done; printf '%s\\002' \"$s\" >> ROOT/log\n"
    for name in PROGRAMS:
        for place in ("stubs", "place"):
            with open(f"{root}/{place}/{name}", "w") as file:
                file.write(stub.replace("ROOT", root))
            os.chmod(f"{root}/{place}/{name}", 0o755)
    for name, real in REAL.items():
        os.symlink(real, f"{root}/stubs/{name}")
    open(f"{root}/log", "w").close()
lines = json.load(sys.stdin)
for number, line in enumerate(lines):
    root = f"/tmp/line{number}"
    stage(root)
    try:
        subprocess.run(["bash", "--noprofile", "--norc", "-c", line.replace("/stubs/", f"{root}/stubs/")], cwd=f"{root}/place",
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=3,
            start_new_session=True, env={"PATH": f"{root}/stubs", "HOME": f"{root}/place", "LC_ALL": "C"})
    except subprocess.TimeoutExpired:
        pass
time.sleep(1)
answers = []
for number, _ in enumerate(lines):
    runs = open(f"/tmp/line{number}/log", "rb").read().decode("utf-8", "replace").split("\x02")[:-1]
    answers.append([run.split("\x01") for run in runs])
    shutil.rmtree(f"/tmp/line{number}")
json.dump(answers, sys.stdout)
""".replace("PROGRAMS", json.dumps(PROGRAMS))
"""Runs in the sandbox: lines as JSON on stdin, on stdout for each the argument lists that stubs were run with."""
