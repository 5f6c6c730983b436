"""Hostile probes that damage what they can reach: files, names, signals and process 1."""

from __future__ import annotations

from codesdk.sandbox.port import ExitKind, FileContent, FileError, FileKind, FileRefused, Listing, Sandbox
from codesdk.sandbox.selfcheck.behaviour_files import expect_refused, read_file
from codesdk.sandbox.selfcheck.context import ProbeContext
from codesdk.sandbox.selfcheck.expectations import ProbeFailed, expect, expect_end, expect_equal, expect_exit
from codesdk.sandbox.selfcheck.probe import Check, Probe, prints

BOUND_S = 10.0


def _listing(sandbox: Sandbox, path: str, depth: int = 1) -> Listing:
    answer = sandbox.files.list(path, depth=depth)
    if isinstance(answer, FileRefused):
        raise ProbeFailed(f"the listing of {path} was refused: {answer.error} {answer.message}")
    return answer


def _destructive(line: str, word: bytes) -> Check:
    """Run a shell line in its own sandbox; it must print `word`, and the sandbox must still work afterwards."""

    def check(context: ProbeContext) -> None:
        with context.own() as sandbox:
            expect_exit(context.sh("echo kept > kept", sandbox))
            ran = expect_end(context.sh(line, sandbox), ExitKind.EXITED, ExitKind.SIGNALED)
            expect(word in ran.stdout, f"it did not run as intended: {ran.stdout[:200]!r} {ran.stderr[:200]!r}")
            expect_exit(context.sh("echo well", sandbox))
            context.expect_usable(sandbox)
            _listing(sandbox, ".")

    return check


def _signals(name: str) -> Check:
    program = f"import os, signal\nprint('begun', flush=True)\nos.kill(-1, signal.SIG{name})\nprint('sent', flush=True)"

    def check(context: ProbeContext) -> None:
        marker = context.marker()
        with context.own() as sandbox:
            # The tool's own process shows that the signal was sent; no other process may be affected.
            victim = context.start_exec(
                sandbox, context.request("sh", "-c", f"echo up; sleep {marker}; echo woke", timeout_s=20)
            )
            ran = expect_end(context.python(program, sandbox), ExitKind.EXITED, ExitKind.SIGNALED)
            expect(ran.stdout.startswith(b"begun"), "it did not run")
            context.expect_usable(sandbox)
            if name != "STOP":
                expect_end(victim.end(), ExitKind.SIGNALED, ExitKind.EXITED)
            else:
                expect(victim.cancel(), "a stopped process could not be ended")
                expect_end(victim.end(), ExitKind.CANCELLED)

    return check


_SIGNAL_OTHERS = """
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


def _stopped(context: ProbeContext) -> None:
    ran = expect_end(context.sh("echo begun; kill -STOP $$; echo never", timeout_s=0.7), ExitKind.TIMED_OUT)
    expect_equal("stdout", ran.stdout, b"begun\n")


def _holds_pipe(context: ProbeContext) -> None:
    with context.own() as sandbox:
        ran = expect_exit(context.sh("for n in 1 2 3; do (trap '' TERM HUP; sleep 60) & done; echo first", sandbox))
        expect_equal("stdout", ran.stdout, b"first\n")
        expect(ran.took_s < BOUND_S, f"it returned after {ran.took_s:.1f} s")


def _closes_all(context: ProbeContext) -> None:
    marker = context.marker()
    running = context.start_exec(
        context.sandbox, context.request("sh", "-c", f"echo begun; exec 0<&- 1>&- 2>&-; sleep {marker}", timeout_s=1.5)
    )
    expect(context.is_running(marker), "it was not seen to live on without its descriptors")
    expect_equal("stdout", expect_end(running.end(), ExitKind.TIMED_OUT).stdout, b"begun\n")
    expect(not context.is_running(marker), "it outlived its exec")


def _link_loops(context: ProbeContext) -> None:
    expect_exit(
        context.sh(
            "mkdir -p loops; cd loops; ln -sfn b a; ln -sfn a b; ln -sfn . self; ln -sfn .. up; for n in $(seq 200); do ln -sfn self l$n; done; ls | wc -l"
        )
    )
    expect_refused(context.sandbox.files.read("loops/a"), FileError.OUTSIDE, FileError.NOT_FOUND)
    # No link may be followed, which would list the same files again.
    expect_equal("entries", len(_listing(context.sandbox, "loops", depth=10).entries), 204)


def _link_bomb(context: ProbeContext) -> None:
    expect_exit(
        context.sh(
            "mkdir -p bomb; head -c 33554432 /dev/zero > bomb/big; for n in $(seq 100); do ln -sf big bomb/l$n; done"
        )
    )
    entries = _listing(context.sandbox, "bomb").entries
    expect_equal("links", sum(entry.kind is FileKind.SYMLINK for entry in entries), 100)
    expect(sum(entry.size for entry in entries) < 40 << 20, "links are counted as what they lead to")
    expect_exit(context.sh("rm -r bomb"))


def _deep(context: ProbeContext) -> None:
    program = (
        "import os\nfor n in range(1000): os.mkdir('d'); os.chdir('d')\nopen('end', 'w').write('x'); print('made')"
    )
    with context.own() as sandbox:
        expect_equal("stdout", expect_exit(context.python(program, sandbox)).stdout, b"made\n")
        entries = _listing(sandbox, ".", depth=3).entries
        expect_equal("entries", [entry.path for entry in entries], ["d", "d/d", "d/d/d"])
        expect_equal("a path of 1000 names", read_file(sandbox, "d/" * 1000 + "end").data, b"x")
        expect_exit(context.sh("rm -rf d", sandbox))


def _bad_names(context: ProbeContext) -> None:
    program = "import os\nos.makedirs('bad', exist_ok=True)\nfor name in (b'\\xff\\xfe', b'\\x80x', b'ok'): open(b'bad/' + name, 'wb').close()\nprint('made')"
    expect_equal("stdout", expect_exit(context.python(program)).stdout, b"made\n")
    expect_equal("entries", len(_listing(context.sandbox, "bad").entries), 3)


def _special(context: ProbeContext) -> None:
    expect_exit(
        context.sh(
            "mkdir -p special; cd special; mkfifo pipe; python3 -I -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'"
        )
    )
    for path in ("special/pipe", "special/sock"):
        expect_refused(context.sandbox.files.read(path), FileError.NOT_A_FILE)
    expect_equal("kinds", {entry.kind for entry in _listing(context.sandbox, "special").entries}, {FileKind.OTHER})
    expect_exit(context.sh("rm -r special"))


def _nul(context: ProbeContext) -> None:
    expect_equal("output", expect_exit(context.run("printf", "a\\0b\\0")).stdout, b"a\0b\0")
    expect_end(context.run("echo", "a\0b"), ExitKind.SPAWN_FAILED)
    expect_end(context.run("env", env={"NAME": "a\0b"}), ExitKind.SPAWN_FAILED)


def _closed_workspace(context: ProbeContext) -> None:
    with context.own() as sandbox:
        expect_exit(context.sh("echo x > kept; chmod 000 .", sandbox))
        expect_equal("an exec afterwards", expect_exit(context.run("cat", "kept", sandbox=sandbox)).stdout, b"x\n")
        expect_exit(context.sh("chmod 000 .", sandbox))
        answer = sandbox.files.read("kept")
        expect_equal("a file afterwards", answer.data if isinstance(answer, FileContent) else answer.error, b"x\n")


_RAISE_LIMITS = """
import resource
raised = []
for name in ("NPROC", "NOFILE", "FSIZE", "CORE", "MEMLOCK"):
    soft, hard = resource.getrlimit(getattr(resource, "RLIMIT_" + name))
    if hard == resource.RLIM_INFINITY: raised.append(name + " has no limit"); continue
    try: resource.setrlimit(getattr(resource, "RLIMIT_" + name), (hard, hard + 1)); raised.append(name)
    except (ValueError, PermissionError): pass
print(raised)
"""
_OOM_SCORE = """
import os
changed = []
for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
    try:
        fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY)
        os.write(fd, b"1000" if int(pid) != os.getpid() else b"-1000"); changed.append(pid)
    except OSError: pass
print("tried", [p for p in changed if int(p) == os.getpid() or os.stat("/proc/" + p).st_uid != os.getuid()])
"""

PROBES = (
    Probe(
        "hostile-delete-programs",
        "a tool that deletes /bin, /usr and /lib deletes nothing",
        _destructive("rm -rf /bin/* /usr/* /lib/* /etc/* 2>/dev/null; echo tried", b"tried"),
    ),
    Probe(
        "hostile-chmod-root",
        "a tool that closes / closes nothing of the system's",
        _destructive("chmod -R 000 / 2>/dev/null; echo tried", b"tried"),
    ),
    Probe(
        "hostile-delete-workspace",
        "an emptied workspace is an empty workspace",
        _destructive(
            "rm -rf /workspace/* /workspace/.[a-z]* /workspace 2>/dev/null; test ! -e /workspace/kept && echo emptied",
            b"emptied",
        ),
    ),
    Probe("hostile-close-workspace", "a workspace that a tool closes to itself is opened again", _closed_workspace),
    Probe(
        "hostile-replace-programs",
        "a tool's PATH and home change nothing for the next exec",
        _destructive(
            "mkdir -p /tmp/home/bin; printf '#!/bin/sh\\necho replaced\\n' > /tmp/home/bin/echo; chmod 755 /tmp/home/bin/echo; export PATH=/tmp/home/bin:$PATH; env echo x",
            b"replaced",
        ),
    ),
    Probe("hostile-kill-all", "a KILL to every process reaches the tool's own only", _signals("KILL")),
    Probe("hostile-stop-all", "a STOP to every process reaches the tool's own only", _signals("STOP")),
    Probe("hostile-hangup-all", "a HUP to every process reaches the tool's own only", _signals("HUP")),
    Probe(
        "hostile-process-one",
        "process 1, the runner and its helpers cannot be signalled",
        prints(_SIGNAL_OTHERS, b"True True []\n", "process 1, more, and those signalled", own=True),
    ),
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
    Probe("hostile-bad-names", "names that are not UTF-8 are listed", _bad_names),
    Probe("hostile-special-files", "pipes and sockets in the workspace are refused at once", _special),
    Probe("hostile-nul", "NUL arrives in output, and is refused in arguments and variables", _nul),
    Probe(
        "hostile-raise-limits",
        "every limit is set, and none can be raised",
        prints(_RAISE_LIMITS, b"[]\n", "limits raised or absent"),
    ),
    Probe(
        "hostile-oom-score",
        "a tool can offer neither the runner to the kernel nor itself less than it did by right",
        prints(_OOM_SCORE, b"tried []\n", "scores changed"),
    ),
)
