"""Probes of workspace file operations."""

from __future__ import annotations

import hashlib
import io
import tarfile
import time
from collections.abc import Callable

from codesdk.sandbox.port import (
    FileContent,
    FileError,
    FileInfo,
    FileKind,
    FileRefused,
    FileWrite,
    Listing,
    Sandbox,
    Watch,
    unspell,
)
from codesdk.sandbox.port.faults import ArchiveRefused
from codesdk.sandbox.selfcheck.context import DEADLINE_S, ProbeContext
from codesdk.sandbox.selfcheck.expectations import ProbeFailed, expect, expect_equal, expect_exit
from codesdk.sandbox.selfcheck.probe import Check, Probe

Answer = FileContent | FileInfo | Listing | tuple[FileInfo, ...] | FileRefused


def write_files(sandbox: Sandbox, *writes: FileWrite) -> tuple[FileInfo, ...]:
    """Write files; fails the probe if refused."""
    answer = sandbox.files.write(writes)
    if isinstance(answer, FileRefused):
        raise ProbeFailed(f"a write of {answer.path} was refused: {answer.error} {answer.message}")
    return answer


def read_file(sandbox: Sandbox, path: str, *, offset: int = 0, length: int | None = None) -> FileContent:
    """Read a file; fails the probe if refused."""
    answer = sandbox.files.read(path, offset=offset, length=length)
    if isinstance(answer, FileRefused):
        raise ProbeFailed(f"a read of {path} was refused: {answer.error} {answer.message}")
    return answer


def expect_refused(answer: Answer, *errors: FileError) -> None:
    """Check that the answer is a refusal with one of these errors and a message."""
    if not isinstance(answer, FileRefused):
        raise ProbeFailed(f"it succeeded, expected {' or '.join(errors)}")
    if answer.error not in errors or not answer.message:
        raise ProbeFailed(f"it was refused with {answer.error} ({answer.message!r}), expected {' or '.join(errors)}")


def _round_trip(content: bytes) -> Check:
    digest = hashlib.sha256(content).hexdigest()

    def check(context: ProbeContext) -> None:
        (info,) = write_files(context.sandbox, FileWrite(path="trip/file", content=content))
        expect_equal("reported size", info.size, len(content))
        found = read_file(context.sandbox, "trip/file")
        expect_equal("content", found.data, content)
        expect_equal("reported digest", found.sha256, f"sha256:{digest}")
        # File operations and execs must see the same content.
        inside = expect_exit(context.run("sha256sum", "trip/file")).stdout[:64]
        expect_equal("digest inside", inside, digest.encode())

    return check


def _large(context: ProbeContext) -> None:
    data = bytes(range(251)) * ((16 << 20) // 251)
    write_files(context.sandbox, FileWrite(path="trip/large", content=data))
    digest = hashlib.sha256(data).hexdigest()
    expect_equal("digest inside", expect_exit(context.run("sha256sum", "trip/large")).stdout[:64], digest.encode())
    got, size = bytearray(), len(data)
    while len(got) < size:
        part = read_file(context.sandbox, "trip/large", offset=len(got)).data
        expect(part, f"the read stopped at {len(got)} of {size} bytes")
        got += part
    expect_equal("digest of 16 MB", hashlib.sha256(got).hexdigest(), digest)
    write_files(context.sandbox, FileWrite(path="trip/large", content=None))


def _ranges(context: ProbeContext) -> None:
    expect_exit(context.sh("printf 0123456789 > range"))
    found = read_file(context.sandbox, "range", offset=3, length=4)
    expect_equal("range", (found.data, found.offset, found.size, found.sha256), (b"3456", 3, 10, None))
    expect_equal("beyond the end", read_file(context.sandbox, "range", offset=50).data, b"")


def _from_exec(context: ProbeContext) -> None:
    expect_exit(context.sh("mkdir -p door; printf 'made inside' > door/inside"))
    expect_equal("made inside", read_file(context.sandbox, "door/inside").data, b"made inside")
    write_files(context.sandbox, FileWrite(path="door/inside", content=b"changed outside"))
    expect_equal("changed outside", expect_exit(context.run("cat", "door/inside")).stdout, b"changed outside")


def _not_found(context: ProbeContext) -> None:
    expect_exit(context.sh("mkdir -p kinds; printf x > kinds/file"))
    expect_equal("what is there", read_file(context.sandbox, "kinds/file").data, b"x")
    files = context.sandbox.files
    for answer in (files.read("kinds/none"), files.stat("kinds/none"), files.list("kinds/none")):
        expect_refused(answer, FileError.NOT_FOUND)
    expect_refused(files.write((FileWrite(path="kinds/none", content=None),)), FileError.NOT_FOUND)


def _directories(context: ProbeContext) -> None:
    write_files(context.sandbox, FileWrite(path="kinds/file", content=b"x"))
    files = context.sandbox.files
    workspace = context.spec().profile.workspace
    for path in ("kinds", f"{workspace}/kinds"):
        expect_refused(files.read(path), FileError.IS_A_DIRECTORY)
        expect_refused(files.write((FileWrite(path=path, content=b""),)), FileError.IS_A_DIRECTORY)
    expect_refused(files.list("kinds/file"), FileError.NOT_A_DIRECTORY)
    expect_refused(files.read("kinds/file/below"), FileError.NOT_A_DIRECTORY)


def _not_allowed(context: ProbeContext) -> None:
    expect_exit(context.sh("mkdir -p closed; echo x > mine; echo x > closed/in; chmod 000 mine closed"))
    expect_refused(context.sandbox.files.read("mine"), FileError.PERMISSION)
    expect_refused(context.sandbox.files.list("closed"), FileError.PERMISSION)
    expect_refused(context.sandbox.files.write((FileWrite(path="closed/new", content=b""),)), FileError.PERMISSION)
    expect_exit(context.sh("chmod 700 mine closed"))
    expect_equal("with the rights", read_file(context.sandbox, "closed/in").data, b"x\n")


def _outside(context: ProbeContext) -> None:
    workspace = context.spec().profile.workspace
    write_files(context.sandbox, FileWrite(path=f"{workspace}/inside", content=b"x"))
    expect_equal("absolute and inside", expect_exit(context.run("cat", f"{workspace}/inside")).stdout, b"x")
    for path in ("../outside", "/etc/passwd", "a/../../outside", f"{workspace}x/file", "/"):
        expect_refused(context.sandbox.files.read(path), FileError.OUTSIDE)
        expect_refused(context.sandbox.files.write((FileWrite(path=path, content=b"x"),)), FileError.OUTSIDE)


def _nonsense(context: ProbeContext) -> None:
    for path in ("a\0b", "x" * 300, "y/" * 3000 + "z"):
        expect_refused(context.sandbox.files.read(path), FileError.INVALID, FileError.NOT_FOUND)
        expect_refused(context.sandbox.files.write((FileWrite(path=path, content=b""),)), FileError.INVALID)


def _odd_names(context: ProbeContext) -> None:
    names = ["odd/äöü 漢字", "odd/new\nline", "odd/ blank ", "odd/\"'$(x)`*\\", "odd/-rf", "odd/\x1b[31m"]
    write_files(context.sandbox, *(FileWrite(path=name, content=name.encode()) for name in names))
    listing = context.sandbox.files.list("odd")
    expect(isinstance(listing, Listing), f"the listing was refused: {listing}")
    if isinstance(listing, Listing):
        expect_equal("names", sorted(unspell(entry.path) for entry in listing.entries), sorted(names))
    for name in names:
        expect_equal("content", read_file(context.sandbox, name).data, name.encode())
        expect_equal("content inside", expect_exit(context.run("cat", name)).stdout, name.encode())


def _modes(context: ProbeContext) -> None:
    write_files(context.sandbox, FileWrite(path="script", content=b"#!/bin/sh\necho 1\n", mode=0o750))
    (info,) = write_files(context.sandbox, FileWrite(path="script", content=b"#!/bin/sh\necho 2\n"))
    expect_equal("mode kept", (info.mode, context.stat_file("script")[0]), (0o750, 0o750))
    expect_equal("it runs", expect_exit(context.run("./script")).stdout, b"2\n")


def _owner(context: ProbeContext) -> None:
    write_files(context.sandbox, FileWrite(path="owned/by/whom", content=b"x"))
    uid = expect_exit(context.run("id", "-u")).stdout
    expect(uid.strip().isdigit(), f"no uid: {uid!r}")
    expect_equal("owners", [context.stat_file(path)[1] for path in ("owned", "owned/by/whom")], [int(uid)] * 2)


def _atomic(context: ProbeContext) -> None:
    write_files(context.sandbox, FileWrite(path="batch/one", content=b"1"))
    digest = read_file(context.sandbox, "batch/one").sha256
    both = (
        FileWrite(path="batch/one", content=b"changed", if_sha256=digest),
        FileWrite(path="batch/two", content=b"new", if_sha256=digest),
    )
    expect_refused(context.sandbox.files.write(both), FileError.CONFLICT)
    expect_equal("content after the refusal", read_file(context.sandbox, "batch/one").data, b"1")
    expect_refused(context.sandbox.files.stat("batch/two"), FileError.NOT_FOUND)
    write_files(context.sandbox, both[0], FileWrite(path="batch/two", content=b"new", if_sha256="absent"))
    expect_equal(
        "content after the change", expect_exit(context.run("cat", "batch/one", "batch/two")).stdout, b"changednew"
    )
    write_files(context.sandbox, *(FileWrite(path=f"batch/{name}", content=None) for name in ("one", "two")))


def _whole_or_old(context: ProbeContext) -> None:
    """Check that a reader inside never sees half of a file that is being replaced."""
    old, new = b"o" * (1 << 20), b"n" * (1 << 20)
    write_files(context.sandbox, FileWrite(path="swap", content=old))
    watch = """
import os, time
print("watching", flush=True)
end, seen = time.time() + 1.2, set()
while time.time() < end:
    data = open("swap", "rb").read()
    seen.add((len(data), data[:1], len(set(data))))
print(sorted(seen))
"""
    watching = context.start_exec(context.sandbox, context.request("python3", "-I", "-c", watch))
    for number in range(30):
        write_files(context.sandbox, FileWrite(path="swap", content=(new, old)[number % 2]))
    seen = expect_exit(watching.end()).stdout.splitlines()[-1].decode()
    expect(seen, "the reader saw nothing")
    whole = {repr((1 << 20, letter, 1)) for letter in (b"o", b"n")}
    expect(set(seen.strip("[]").replace("), (", ")|(").split("|")) <= whole, f"a reader saw {seen}")


def _listing(context: ProbeContext) -> None:
    write_files(context.sandbox, *(FileWrite(path=f"listed/{name}", content=b"1") for name in ("c", "a/x/deep", "b")))
    expect_exit(context.sh("ln -sfn /etc listed/link"))
    shown = context.sandbox.files.list("listed", depth=2)
    if not isinstance(shown, Listing):
        raise ProbeFailed(f"the listing was refused: {shown.error}")
    expect_equal(
        "entries",
        [entry.path for entry in shown.entries],
        [f"listed/{name}" for name in ("a", "b", "c", "link", "a/x")],
    )
    expect_equal("kind of the link", shown.entries[3].kind, FileKind.SYMLINK)
    cut = context.sandbox.files.list("listed", limit=2)
    expect_equal("cut", isinstance(cut, Listing) and (len(cut.entries), cut.truncated), (2, True))


def _delete(context: ProbeContext) -> None:
    write_files(context.sandbox, FileWrite(path="short", content=b"x"))
    expect_equal("inside", expect_exit(context.run("cat", "short")).stdout, b"x")
    write_files(context.sandbox, FileWrite(path="short", content=None))
    expect_exit(context.sh("test ! -e short"))


def _tar(*members: tuple[str, bytes, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            info.linkname = content.decode() if kind != tarfile.REGTYPE else ""
            tar.addfile(info, io.BytesIO(content) if info.size else None)
    return target.getvalue()


def _archive(context: ProbeContext) -> None:
    archive = _tar(
        ("pkg/a", tarfile.REGTYPE, b"1"), ("pkg/b/c", tarfile.REGTYPE, b"2"), ("pkg/l", tarfile.SYMTYPE, b"a")
    )
    context.sandbox.import_tar(archive)
    expect_equal("inside", expect_exit(context.run("cat", "pkg/a", "pkg/b/c", "pkg/l")).stdout, b"121")


def _hostile_archives(context: ProbeContext) -> None:
    kinds = (
        ("../escape", tarfile.REGTYPE, b"x"),
        ("/tmp/escape", tarfile.REGTYPE, b"x"),  # noqa: S108 - a name inside
        ("device", tarfile.BLKTYPE, b""),
        ("link", tarfile.SYMTYPE, b"/etc/passwd"),
        ("hard", tarfile.LNKTYPE, b"../../etc/passwd"),
    )
    for member in kinds:
        try:
            context.sandbox.import_tar(_tar(("innocent", tarfile.REGTYPE, b"x"), member))
        except ArchiveRefused:
            pass
        else:
            raise ProbeFailed(f"an archive with {member[0]} of type {member[1]!r} was unpacked")
        expect_refused(context.sandbox.files.stat("innocent"), FileError.NOT_FOUND)
    expect_equal(
        "what was written",
        expect_exit(context.sh("ls -d /tmp/escape ../escape innocent 2>/dev/null; echo looked")).stdout,
        b"looked\n",
    )


def _collect_changes(
    context: ProbeContext, watch: Watch, met: Callable[[set[tuple[str, str]]], object]
) -> set[tuple[str, str]]:
    """Collect kind and path of reported changes until `met` returns a true value."""
    found: set[tuple[str, str]] = set()
    after, deadline = 0, time.monotonic() + DEADLINE_S
    while not met(found):
        expect(time.monotonic() < deadline, f"only {len(found)} changes were reported, such as {sorted(found)[:5]}")
        part = context.sandbox.files.changes(watch.id, after, wait_s=1.0)
        if isinstance(part, FileRefused) or part.over:
            raise ProbeFailed(f"the watch ended: {part}")
        after = part.next
        found |= {(change.kind.value, change.path) for change in part.changes}
    return found


def _watch_run(context: ProbeContext, line: str, met: Callable[[set[tuple[str, str]]], object]) -> set[tuple[str, str]]:
    """Run a line in the empty directory `seen` while it is watched."""
    expect_exit(context.sh("rm -rf seen && mkdir seen"))
    watch = context.sandbox.files.watch("seen")
    if isinstance(watch, FileRefused):
        raise ProbeFailed(f"a watch was refused: {watch.error} {watch.message}")
    try:
        expect_exit(context.sh(f"cd seen && {line}"))
        return _collect_changes(context, watch, met)
    finally:
        context.sandbox.files.unwatch(watch.id)


def _watching(context: ProbeContext) -> None:
    wanted = {("created", f"seen/{name}") for name in ("sub", "sub/file", "end")}
    _watch_run(context, "mkdir sub && echo x > sub/file && touch end", lambda found: wanted <= found)


def _watching_a_storm(context: ProbeContext) -> None:
    last = ("created", "seen/last")
    found = _watch_run(
        context, "i=0; while [ $i -lt 6000 ]; do : > f$i; i=$((i+1)); done; : > last", lambda found: last in found
    )
    seen = sum(1 for kind, _ in found if kind == "created")
    expect(("overflow", "seen") in found or seen == 6001, f"{seen} of 6001 files were reported, and no overflow")  # noqa: PLR2004


PROBES = (
    Probe(
        "file-text",
        "text is read back as written, and seen inside",
        _round_trip("line\nünïcode 漢字 😀\r\nno newline at the end".encode()),
    ),
    Probe("file-binary", "every byte value is read back as written", _round_trip(bytes(range(256)) * 33)),
    Probe("file-empty", "an empty file is a file", _round_trip(b"")),
    Probe("file-large", "16 MB are written, and read back in parts", _large),
    Probe("file-ranges", "ranges are read, also beyond the end", _ranges),
    Probe("file-same-as-exec", "file operations and programs see the same files", _from_exec),
    Probe("file-not-found", "a missing file is an outcome of its own", _not_found),
    Probe("file-directory", "directories and files are distinguished", _directories),
    Probe("file-not-allowed", "files are read and written with the tool's rights, not root's", _not_allowed),
    Probe("file-outside", "paths out of the workspace are refused; absolute ones inside are served", _outside),
    Probe("file-nonsense", "names with NUL, and names that are too long, are refused", _nonsense),
    Probe("file-odd-names", "names with newlines, blanks, quotes and control characters are kept", _odd_names),
    Probe("file-modes", "a file that is replaced keeps its mode", _modes),
    Probe("file-owner", "what is written belongs to the tool", _owner),
    Probe("file-batch", "a batch with a failed precondition changes nothing", _atomic),
    Probe("file-whole-or-old", "a reader sees the old file or the new one, never a part", _whole_or_old),
    Probe(
        "file-listing",
        "listings are sorted, have their depth, show links as links, and say when they are cut",
        _listing,
    ),
    Probe("file-delete", "a deleted file is gone inside", _delete),
    Probe("file-watch", "changes in a watched directory, and below it, are reported", _watching),
    Probe("file-watch-storm", "of a storm of files every one is reported, or an overflow is", _watching_a_storm),
    Probe("file-archive", "a tar is unpacked into the workspace", _archive),
    Probe("file-hostile-archives", "archives that lead out, or hold devices, are refused whole", _hostile_archives),
)
