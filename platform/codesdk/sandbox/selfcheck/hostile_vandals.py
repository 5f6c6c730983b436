"""Programs that break what they can reach: files, names, signals, process 1."""

from __future__ import annotations

from codesdk.sandbox.port import ExitKind, FileContent, FileError, FileKind, FileRefused, Listing, Sandbox
from codesdk.sandbox.selfcheck.behaviour_files import read, refused
from codesdk.sandbox.selfcheck.bench import Bench
from codesdk.sandbox.selfcheck.probe import Check, Probe
from codesdk.sandbox.selfcheck.seeing import Unmet, demand, ended, exited, same

BOUND_S = 10.0


def _listing(sandbox: Sandbox, path: str, depth: int = 1) -> Listing:
    answer = sandbox.files.list(path, depth=depth)
    if isinstance(answer, FileRefused):
        raise Unmet(f"the listing of {path} was refused: {answer.error} {answer.message}")
    return answer


def _vandal(line: str, word: bytes) -> Check:
    """A shell line in a sandbox of its own that must say a word (so it is known to have run); then all still works."""

    def check(bench: Bench) -> None:
        with bench.own() as sandbox:
            written = bench.sh("echo kept > kept", sandbox)
            exited(written)
            ran = ended(bench.sh(line, sandbox), ExitKind.EXITED, ExitKind.SIGNALED)
            demand(word in ran.stdout, f"it did not run as meant: {ran.stdout[:200]!r} {ran.stderr[:200]!r}")
            exited(bench.sh("echo well", sandbox))
            same("an exec afterwards", bench.run("echo", "well", sandbox=sandbox).stdout, b"well\n")
            _listing(sandbox, ".")

    return check


def _signals(name: str) -> Check:
    program = f"import os, signal\nprint('begun', flush=True)\nos.kill(-1, signal.SIG{name})\nprint('sent', flush=True)"

    def check(bench: Bench) -> None:
        marker = bench.marker()
        with bench.own() as sandbox:
            # A process of the tool's own shows that the signal was sent; everything else must not have felt it.
            victim = bench.begin(
                sandbox, bench.request("sh", "-c", f"echo up; sleep {marker}; echo woke", timeout_s=20)
            )
            ran = ended(bench.python(program, sandbox), ExitKind.EXITED, ExitKind.SIGNALED)
            demand(ran.stdout.startswith(b"begun"), "it did not run")
            same("an exec afterwards", exited(bench.run("echo", "well", sandbox=sandbox)).stdout, b"well\n")
            if name != "STOP":
                ended(victim.end(), ExitKind.SIGNALED, ExitKind.EXITED)
            else:
                demand(victim.cancel(), "a stopped process could not be ended")
                ended(victim.end(), ExitKind.CANCELLED)

    return check


def _process_one(bench: Bench) -> None:
    program = """
import os, signal
mine = os.getuid()
others = [int(p) for p in os.listdir("/proc") if p.isdigit() and os.stat("/proc/" + p).st_uid != mine]
done = []
for pid in others:
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, 0):
        try: os.kill(pid, number); done.append((pid, int(number)))
        except PermissionError: pass
print(1 in others, len(others) > 1, done)
"""
    with bench.own() as sandbox:
        same(
            "process 1 is there, others are, and signalled",
            exited(bench.python(program, sandbox)).stdout,
            b"True True []\n",
        )


def _stopped(bench: Bench) -> None:
    ran = ended(bench.sh("echo begun; kill -STOP $$; echo never", timeout_s=0.7), ExitKind.TIMED_OUT)
    same("stdout", ran.stdout, b"begun\n")


def _holds_pipe(bench: Bench) -> None:
    with bench.own() as sandbox:
        ran = exited(bench.sh("for n in 1 2 3; do (trap '' TERM HUP; sleep 60) & done; echo first", sandbox))
        same("stdout", ran.stdout, b"first\n")
        demand(ran.took_s < BOUND_S, f"it returned after {ran.took_s:.1f} s")


def _closes_all(bench: Bench) -> None:
    marker = bench.marker()
    running = bench.begin(
        bench.sandbox, bench.request("sh", "-c", f"echo begun; exec 0<&- 1>&- 2>&-; sleep {marker}", timeout_s=1.5)
    )
    demand(bench.lives(marker), "it was not seen to live on without its descriptors")
    same("stdout", ended(running.end(), ExitKind.TIMED_OUT).stdout, b"begun\n")
    demand(not bench.lives(marker), "it outlived its exec")


def _link_loops(bench: Bench) -> None:
    exited(
        bench.sh(
            "mkdir -p loops; cd loops; ln -sfn b a; ln -sfn a b; ln -sfn . self; ln -sfn .. up; for n in $(seq 200); do ln -sfn self l$n; done; ls | wc -l"
        )
    )
    refused(bench.sandbox.files.read("loops/a"), FileError.OUTSIDE, FileError.NOT_FOUND)
    # As many names as are listed are files of their own; no link is followed into the same again.
    same("entries", len(_listing(bench.sandbox, "loops", depth=10).entries), 204)


def _link_bomb(bench: Bench) -> None:
    exited(
        bench.sh(
            "mkdir -p bomb; head -c 33554432 /dev/zero > bomb/big; for n in $(seq 100); do ln -sf big bomb/l$n; done"
        )
    )
    entries = _listing(bench.sandbox, "bomb").entries
    same("links", sum(entry.kind is FileKind.SYMLINK for entry in entries), 100)
    demand(sum(entry.size for entry in entries) < 40 << 20, "links are counted as what they lead to")
    exited(bench.sh("rm -r bomb"))


def _deep(bench: Bench) -> None:
    program = (
        "import os\nfor n in range(1000): os.mkdir('d'); os.chdir('d')\nopen('end', 'w').write('x'); print('made')"
    )
    with bench.own() as sandbox:
        same("its word", exited(bench.python(program, sandbox)).stdout, b"made\n")
        entries = _listing(sandbox, ".", depth=3).entries
        same("entries", [entry.path for entry in entries], ["d", "d/d", "d/d/d"])
        same("a path of 1000 names", read(sandbox, "d/" * 1000 + "end").data, b"x")
        exited(bench.sh("rm -rf d", sandbox))


def _bad_names(bench: Bench) -> None:
    program = "import os\nos.makedirs('bad', exist_ok=True)\nfor name in (b'\\xff\\xfe', b'\\x80x', b'ok'): open(b'bad/' + name, 'wb').close()\nprint('made')"
    same("its word", exited(bench.python(program)).stdout, b"made\n")
    same("entries", len(_listing(bench.sandbox, "bad").entries), 3)


def _special(bench: Bench) -> None:
    exited(
        bench.sh(
            "mkdir -p special; cd special; mkfifo pipe; python3 -I -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'"
        )
    )
    for path in ("special/pipe", "special/sock"):
        refused(bench.sandbox.files.read(path), FileError.NOT_A_FILE)
    same("kinds", {entry.kind for entry in _listing(bench.sandbox, "special").entries}, {FileKind.OTHER})
    exited(bench.sh("rm -r special"))


def _nul(bench: Bench) -> None:
    same("output", exited(bench.run("printf", "a\\0b\\0")).stdout, b"a\0b\0")
    ended(bench.run("echo", "a\0b"), ExitKind.SPAWN_FAILED)
    ended(bench.run("env", env={"NAME": "a\0b"}), ExitKind.SPAWN_FAILED)


def _closed_workspace(bench: Bench) -> None:
    with bench.own() as sandbox:
        exited(bench.sh("echo x > kept; chmod 000 .", sandbox))
        same("an exec afterwards", exited(bench.run("cat", "kept", sandbox=sandbox)).stdout, b"x\n")
        exited(bench.sh("chmod 000 .", sandbox))
        answer = sandbox.files.read("kept")
        same("a file afterwards", answer.data if isinstance(answer, FileContent) else answer.error, b"x\n")


def _raise_limits(bench: Bench) -> None:
    program = """
import resource
raised = []
for name in ("NPROC", "NOFILE", "FSIZE", "CORE", "MEMLOCK"):
    soft, hard = resource.getrlimit(getattr(resource, "RLIMIT_" + name))
    if hard == resource.RLIM_INFINITY: raised.append(name + " has no limit"); continue
    try: resource.setrlimit(getattr(resource, "RLIMIT_" + name), (hard, hard + 1)); raised.append(name)
    except (ValueError, PermissionError): pass
print(raised)
"""
    same("limits raised or absent", exited(bench.python(program)).stdout, b"[]\n")


def _oom_score(bench: Bench) -> None:
    program = """
import os
told = []
for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
    try:
        fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY)
        os.write(fd, b"1000" if int(pid) != os.getpid() else b"-1000"); told.append(pid)
    except OSError: pass
print("tried", [p for p in told if int(p) == os.getpid() or os.stat("/proc/" + p).st_uid != os.getuid()])
"""
    same("scores changed", exited(bench.python(program)).stdout, b"tried []\n")


PROBES = (
    Probe(
        "hostile-delete-programs",
        "a tool that deletes /bin, /usr and /lib deletes nothing",
        _vandal("rm -rf /bin/* /usr/* /lib/* /etc/* 2>/dev/null; echo tried", b"tried"),
    ),
    Probe(
        "hostile-chmod-root",
        "a tool that closes / closes nothing of the system's",
        _vandal("chmod -R 000 / 2>/dev/null; echo tried", b"tried"),
    ),
    Probe(
        "hostile-delete-workspace",
        "an emptied workspace is an empty workspace",
        _vandal(
            "rm -rf /workspace/* /workspace/.[a-z]* /workspace 2>/dev/null; test ! -e /workspace/kept && echo emptied",
            b"emptied",
        ),
    ),
    Probe("hostile-close-workspace", "a workspace that a tool closes to itself is opened again", _closed_workspace),
    Probe(
        "hostile-replace-programs",
        "a tool's PATH and home change nothing for the next exec",
        _vandal(
            "mkdir -p /tmp/home/bin; printf '#!/bin/sh\\necho replaced\\n' > /tmp/home/bin/echo; chmod 755 /tmp/home/bin/echo; export PATH=/tmp/home/bin:$PATH; env echo x",
            b"replaced",
        ),
    ),
    Probe("hostile-kill-all", "a KILL to every process reaches the tool's own only", _signals("KILL")),
    Probe("hostile-stop-all", "a STOP to every process reaches the tool's own only", _signals("STOP")),
    Probe("hostile-hangup-all", "a HUP to every process reaches the tool's own only", _signals("HUP")),
    Probe("hostile-process-one", "process 1, the runner and its helpers cannot be signalled", _process_one),
    Probe("hostile-stopped", "a program that stops itself is ended by its timeout", _stopped),
    Probe(
        "hostile-holds-pipe",
        "children that hold the output and ignore TERM do not keep an exec from returning",
        _holds_pipe,
    ),
    Probe(
        "hostile-closes-all", "a program that closes its descriptors and lives on is ended by its timeout", _closes_all
    ),
    Probe("hostile-link-loops", "loops of links end a listing no later", _link_loops),
    Probe("hostile-link-bomb", "a hundred links to one large file count as links", _link_bomb),
    Probe("hostile-deep-directories", "a thousand directories deep, files work, listings keep to their depth", _deep),
    Probe("hostile-bad-names", "names that are no UTF-8 are listed", _bad_names),
    Probe("hostile-special-files", "pipes and sockets in the workspace are refused at once", _special),
    Probe("hostile-nul", "NUL arrives in output, and is refused in arguments and variables", _nul),
    Probe("hostile-raise-limits", "every limit is set, and none can be raised", _raise_limits),
    Probe(
        "hostile-oom-score",
        "a tool can offer neither the runner to the kernel nor itself less than it did by right",
        _oom_score,
    ),
)
