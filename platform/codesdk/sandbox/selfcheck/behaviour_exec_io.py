"""Probes of running a program: arguments, environment, working directory, input and output."""

from __future__ import annotations

import hashlib

from codesdk.sandbox.isolation.spec import TOOL_ENV
from codesdk.sandbox.port import ExitKind, FileContent, FileWrite
from codesdk.sandbox.port.faults import AlreadyAcknowledged
from codesdk.sandbox.selfcheck.context import ProbeContext
from codesdk.sandbox.selfcheck.expectations import ProbeFailed, expect, expect_end, expect_equal, expect_exit
from codesdk.sandbox.selfcheck.probe import Check, Probe

MIB = 1024 * 1024
MARKS = 1 << 30
"""First group id that marks an exec, where the runtime has no subreapers."""
EVERY_BYTE = bytes(range(256))
ODD_WORDS = ("", " ", "a b", "$(id)", "`id`", "'\"", "*", "\\", "-n", "é😀", "line\nbreak", ";rm", "\x01\x7f")


def _streams_apart(context: ProbeContext) -> None:
    ran = expect_exit(context.sh("printf out; printf err >&2; printf out2; exit 3"), 3)
    expect_equal("stdout", ran.stdout, b"outout2")
    expect_equal("stderr", ran.stderr, b"err")
    expect_equal("counted bytes", (ran.result.stdout.bytes, ran.result.stderr.bytes), (7, 3))


def _every_byte(context: ProbeContext) -> None:
    # Uses octal escapes: encoding errors on the way in and out could cancel each other.
    octal = "".join(f"\\{value:03o}" for value in EVERY_BYTE)
    expect_equal("stdout", expect_exit(context.run("printf", octal)).stdout, EVERY_BYTE)
    expect_equal("stderr", expect_exit(context.sh(f"printf '{octal}' >&2")).stderr, EVERY_BYTE)


def _utf8(context: ProbeContext) -> None:
    ran = expect_exit(context.run("printf", "\\303\\251\\360\\237\\230\\200\\342\\202\\254"))
    expect_equal("stdout", ran.stdout, "é😀€".encode())


def _invalid_utf8(context: ProbeContext) -> None:
    ran = expect_exit(context.sh("printf '\\377\\376hello\\303'; printf '\\200' >&2"))
    expect_equal("stdout", ran.stdout, b"\xff\xfehello\xc3")
    expect_equal("stderr", ran.stderr, b"\x80")


def _nothing_added(context: ProbeContext) -> None:
    expect_equal("stdout", expect_exit(context.run("printf", "x")).stdout, b"x")
    expect_equal("stdout of a line", expect_exit(context.run("echo", "x")).stdout, b"x\n")
    expect_equal("stdout of CRLF", expect_exit(context.run("printf", "x\\r\\n")).stdout, b"x\r\n")


def _empty_output(context: ProbeContext) -> None:
    expect_equal("streams", (ran := expect_exit(context.sh("exit 7"), 7)).stdout + ran.stderr, b"")


def _large_output(context: ProbeContext) -> None:
    program = "import os\nfor n in range(160): os.write(1, bytes([n % 251]) * 65536)"
    wanted = b"".join(bytes([number % 251]) * 65536 for number in range(160))
    ran = expect_exit(context.python(program))
    expect_equal("digest of 10 MiB", hashlib.sha256(ran.stdout).hexdigest(), hashlib.sha256(wanted).hexdigest())


def _split_letters(context: ProbeContext) -> None:
    program = """
import os
text = b"." + "é😀".encode() * 20000
for place in range(0, len(text), 4093):
    os.write(1, text[place:place + 4093]); os.write(2, b"e")
"""
    ran = expect_exit(context.python(program))
    expect_equal("stdout", ran.stdout, b"." + "é😀".encode() * 20000)
    expect_equal("stderr", ran.stderr, b"e" * 30)


def _dropped(context: ProbeContext) -> None:
    data = b"".join(b"%05d" % number for number in range(1000))
    ran = expect_exit(context.sh("cat; printf e >&2", stdin=data, keep_bytes=1000))
    expect_equal("kept", (len(ran.stdout), ran.stderr), (1000, b"e"))
    expect_equal("bytes, dropped", (ran.result.stdout.bytes, ran.result.stdout.dropped), (5000, 4000))
    # Either the head, or head and tail, of the bytes written.
    heads = [size for size in range(1001) if ran.stdout == data[:size] + data[len(data) - (1000 - size) :]]
    expect(heads, f"what was kept is no part of what was written: {ran.stdout[:100]!r}")


def _environment(context: ProbeContext) -> None:
    odd = {"PLAIN": "blue", "EMPTY": "", "SPACES": " a  b ", "LINES": "a\nb", "LETTERS": "é😀", "QUOTES": "'\"$HOME`"}
    ran = expect_exit(
        context.python(f"import os; print(ascii({{k: os.environ.get(k) for k in {sorted(odd)!r}}}))", env=odd)
    )
    expect_equal("environment", ran.stdout.decode().strip(), ascii({name: odd[name] for name in sorted(odd)}))


def _environment_is_own(context: ProbeContext) -> None:
    expect_exit(context.run("printenv", "CODESDK_ONCE", env={"CODESDK_ONCE": "planted"}))
    expect_equal("the next exec's", expect_exit(context.run("printenv", "CODESDK_ONCE"), 1).stdout, b"")


def _environment_is_not_ours(context: ProbeContext) -> None:
    names = {line.partition("=")[0] for line in expect_exit(context.run("env")).stdout.decode().splitlines()}
    expect("PATH" in names, f"no PATH among {sorted(names)}")
    known = {*TOOL_ENV, "HOSTNAME", "PATH", "PWD", "SHLVL", "_", "LC_ALL", "TERM"}
    image = {name for name in names if name.startswith(("PYTHON_", "NODE_", "YARN_"))} | {"GPG_KEY"}
    expect_equal("unexpected variables", sorted(names - known - image), [])


def _words(context: ProbeContext) -> None:
    ran = expect_exit(context.python("import sys; print(ascii(sys.argv[1:]))"))
    expect_equal("no words", ran.stdout, b"[]\n")
    ran = expect_exit(context.run("python3", "-I", "-c", "import sys; print(ascii(sys.argv[1:]))", *ODD_WORDS))
    expect_equal("words", ran.stdout.decode().strip(), ascii(list(ODD_WORDS)))


def _many_words(context: ProbeContext) -> None:
    # One argument is limited to 128 KiB (MAX_ARG_STRLEN).
    words = [f"{number:02d}" * (32 * 1024) for number in range(16)]
    ran = expect_exit(context.run("sh", "-c", 'echo $#; printf %s "$@" | sha256sum', "sh", *words))
    digest = hashlib.sha256("".join(words).encode()).hexdigest()
    expect_equal("count and digest", ran.stdout.decode().split()[:2], ["16", digest])


def _arrives(data: bytes) -> Check:
    """Return a check that a program reads exactly this from stdin."""
    return lambda context: expect_equal("stdin", expect_exit(context.run("cat", stdin=data)).stdout, data)


def _stdin_is_empty(context: ProbeContext) -> None:
    ran = expect_exit(context.sh("wc -c; echo ended"))
    expect_equal("bytes read, and the end", ran.stdout.split(), [b"0", b"ended"])
    expect(ran.took_s < 5, f"an empty input ended only after {ran.took_s:.1f} s")  # noqa: PLR2004 - far from hanging


def _stdin_large(context: ProbeContext) -> None:
    data = bytes(range(251)) * (50 * MIB // 251)
    ran = expect_exit(context.run("sha256sum", stdin=data, timeout_s=60))
    expect_equal("digest of 50 MB", ran.stdout.split()[:1], [hashlib.sha256(data).hexdigest().encode()])


def _stdin_unread(context: ProbeContext) -> None:
    ran = expect_exit(context.sh("echo done", stdin=bytes(4 * MIB)))
    expect_equal("stdout", ran.stdout, b"done\n")


def _directory(context: ProbeContext) -> None:
    workspace = context.spec().profile.workspace
    expect_equal("default", expect_exit(context.run("pwd")).stdout.decode(), f"{workspace}\n")
    context.sandbox.files.write((FileWrite(path="probe/below/here/file", content=b""),))
    expect_equal(
        "below",
        expect_exit(context.run("pwd", cwd="probe/below/here")).stdout.decode(),
        f"{workspace}/probe/below/here\n",
    )


def _directory_refused(context: ProbeContext) -> None:
    expect_exit(context.sh("ln -sfn /etc out"))
    for cwd in ("no/such", "..", "/etc", "out"):
        ran = expect_end(context.run("pwd", cwd=cwd), ExitKind.SPAWN_FAILED)
        expect(ran.result.error, f"no reason was given why {cwd} was refused")


def _no_program(context: ProbeContext) -> None:
    ran = expect_end(context.run("codesdk-no-such-program"), ExitKind.SPAWN_FAILED)
    expect("codesdk-no-such-program" in ran.result.error, f"the error names no program: {ran.result.error!r}")


def _not_executable(context: ProbeContext) -> None:
    context.sandbox.files.write((FileWrite(path="plain", content=b"#!/bin/sh\n", mode=0o644),))
    expect_end(context.run("./plain"), ExitKind.SPAWN_FAILED)
    context.sandbox.files.write((FileWrite(path="plain", content=b"#!/bin/sh\necho ran\n", mode=0o755),))
    expect_equal("made executable", expect_exit(context.run("./plain")).stdout, b"ran\n")


def _is_the_tool(context: ProbeContext) -> None:
    with context.own() as sandbox:
        uid, gid, *groups = map(int, expect_exit(context.sh("id -u; id -g; id -G", sandbox)).stdout.split())
        stated = sandbox.attestation.tool_uid
    expect_equal("uid and gid", (uid, gid), (stated, stated))
    expect(stated > 0, "a tool is root")
    others = [group for group in groups if group != stated and group < MARKS]
    expect(not others, f"a tool is in the groups {others}")


def _places_to_write(context: ProbeContext) -> None:
    expect_exit(
        context.sh('set -e; for d in "$HOME" "$TMPDIR" . /tmp; do echo x > "$d/place.x"; rm "$d/place.x"; done')
    )
    expect_exit(context.sh('cp /bin/true "$TMPDIR/program" && "$TMPDIR/program"'))
    expect_exit(context.sh("rm -f new; touch new"))
    expect_equal("mode of a new file", context.stat_file("new")[0], 0o644)


def _once(context: ProbeContext) -> None:
    request = context.request("sh", "-c", "echo x >> ran; wc -l < ran; printf e >&2; exit 5")
    first, again = context.run_request(context.sandbox, request), context.run_request(context.sandbox, request)
    expect_equal("first", (expect_exit(first, 5).stdout.strip(), first.stderr), (b"1", b"e"))
    expect_equal(
        "the same attempt again", (again.result, again.stdout, again.stderr), (first.result, first.stdout, first.stderr)
    )
    content = context.sandbox.files.read("ran")
    expect_equal("how often it ran", content.data if isinstance(content, FileContent) else content, b"x\n")
    context.sandbox.files.write((FileWrite(path="ran", content=None),))


def _once_acknowledged(context: ProbeContext) -> None:
    request = context.request("sh", "-c", "echo ran")
    expect_equal("stdout", expect_exit(context.run_request(context.sandbox, request)).stdout, b"ran\n")
    context.sandbox.acknowledge(request.call, request.attempt)
    try:
        context.run_request(context.sandbox, request)
    except AlreadyAcknowledged:
        return
    raise ProbeFailed("an acknowledged attempt was run or answered again")


def _side_by_side(context: ProbeContext) -> None:
    program = "import sys\nfor n in range(2000): print(sys.argv[1] * 7, flush=n % 100 == 0)"
    started = [
        context.start_exec(context.sandbox, context.request("python3", "-I", "-c", program, str(number)))
        for number in range(6)
    ]
    for number, running in enumerate(started):
        expect_equal(f"output {number}", expect_exit(running.end()).stdout, (str(number) * 7 + "\n").encode() * 2000)


PROBES = (
    Probe(
        "exec-streams-apart", "stdout and stderr come back apart, with the exit code and their counts", _streams_apart
    ),
    Probe("exec-every-byte", "all 256 byte values arrive on both streams", _every_byte),
    Probe("exec-utf8-from-octal", "UTF-8 that is made inside from octal escapes arrives", _utf8),
    Probe("exec-invalid-utf8", "bytes that are not UTF-8 arrive unchanged", _invalid_utf8),
    Probe("exec-nothing-added", "no newline is added or changed", _nothing_added),
    Probe("exec-empty-output", "no output is no output, and the exit code is kept", _empty_output),
    Probe("exec-large-output", "10 MiB arrive whole", _large_output),
    Probe("exec-split-letters", "letters split between reads, with stderr between, arrive whole", _split_letters),
    Probe("exec-dropped-is-counted", "output beyond what is kept is counted", _dropped),
    Probe("exec-environment", "variables arrive with any content", _environment),
    Probe("exec-environment-is-own", "an exec's variables are not the next one's", _environment_is_own),
    Probe("exec-environment-is-not-ours", "nothing of the worker's environment is seen", _environment_is_not_ours),
    Probe("exec-words", "arguments arrive literally: empty, blank, quotes, substitutions, letters", _words),
    Probe("exec-many-words", "1 MiB of arguments arrives", _many_words),
    Probe("exec-stdin", "text arrives on stdin", _arrives("first\nsecond é\nno newline".encode())),
    Probe("exec-stdin-empty", "an empty stdin is at its end at once", _stdin_is_empty),
    Probe(
        "exec-stdin-literal",
        "stdin is not interpreted by a shell or terminal",
        _arrives(b"$(id) `id` \\ ' \" ; rm -rf / \n | & \x03 \x04"),
    ),
    Probe("exec-stdin-binary", "binary stdin arrives", _arrives(EVERY_BYTE * 1000)),
    Probe("exec-stdin-large", "50 MB of stdin arrive", _stdin_large),
    Probe("exec-stdin-unread", "a program that does not read its stdin ends all the same", _stdin_unread),
    Probe("exec-directory", "the working directory is the workspace or beneath it", _directory),
    Probe(
        "exec-directory-refused",
        "a working directory that is missing or outside is refused, with a reason",
        _directory_refused,
    ),
    Probe("exec-no-program", "a program that does not exist is an outcome with its name", _no_program),
    Probe("exec-not-executable", "a file without the right to execute does not run; with it, it does", _not_executable),
    Probe("exec-is-the-tool", "a tool has its own uid and gid and no other group", _is_the_tool),
    Probe(
        "exec-places-to-write",
        "HOME, TMPDIR and the workspace can be written; programs run from TMPDIR; new files have mode 644",
        _places_to_write,
    ),
    Probe("exec-runs-once", "the same attempt again is answered from what is stored, and does not run", _once),
    Probe("exec-acknowledged-is-refused", "an acknowledged attempt is refused and does not run", _once_acknowledged),
    Probe("exec-side-by-side", "six execs at once do not mix their output", _side_by_side),
)
