"""`codesdk approvals watch`: a live inbox with single-key votes."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.text import Text

from codesdk.approvals import Approval, ApprovalState, Verdict
from codesdk.cli.api_client import ApiClient, connect
from codesdk.cli.approval.approvals import call_line, detail_lines
from codesdk.cli.approval.pending_approvals import PendingApprovals
from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.stack.signals import Signals
from codesdk.errors import Fault

REFRESH_S = 15.0
"""Seconds between refreshes without keys or news. Expired approvals are reported a little late."""
VERDICTS = {"a": Verdict.APPROVE, "r": Verdict.REJECT}
HELP = "a approves, r rejects, s skips, q quits"
BATCH_HELP = "A approves and R rejects these together"

ReadKey = Callable[[float], str]
"""Waits up to that many seconds for a key or for news. Returns an empty string without a key, `q` at end of input."""


class Inbox:
    """Shows one approval at a time, oldest first. A vote names the digest of the approval on the screen."""

    def __init__(
        self, daemon: ApiClient, pending: PendingApprovals, progress: Callable[[str], object], key: ReadKey
    ) -> None:
        self._daemon = daemon
        self._pending = pending
        self._print = progress
        self._key = key
        self._done: set[str] = set()

    def run(self) -> None:
        """Run until the user presses q."""
        while True:
            waiting = [each for each in self._pending.waiting() if each.id not in self._done]
            if not waiting:
                if self._key(REFRESH_S).lower() == "q":
                    return
            elif not self._prompt(waiting[0], waiting):
                return

    def _prompt(self, shown: Approval, waiting: Sequence[Approval]) -> bool:
        """Show an approval, and the others of its rules and session, until it is answered, skipped or over.

        False: quit.
        """
        batch = [each for each in waiting if (each.rules, each.session_id) == (shown.rules, shown.session_id)]
        for line in detail_lines(shown, time.time()):
            self._print(line)
        for each in batch[1:]:
            self._print(f"Also       {each.id} {call_line(each)}")
        self._print(f"{len(waiting)} waiting: {HELP}{f'; {BATCH_HELP} {len(batch)}' if len(batch) > 1 else ''}")
        self._done.add(shown.id)
        while True:
            pressed = self._key(REFRESH_S)
            if pressed in ("A", "R") and len(batch) > 1:
                self._done.update(each.id for each in batch)
                for each in batch:
                    self._print(self._vote(each, VERDICTS[pressed.lower()]))
                return True
            pressed = pressed.lower()
            if pressed in ("q", "s"):
                return pressed == "s"
            if pressed in VERDICTS:
                self._print(self._vote(shown, VERDICTS[pressed]))
                return True
            state = self._pending.state(shown)
            if state is not ApprovalState.PENDING:
                self._print(f"{shown.id} is {state} now.")
                return True

    def _vote(self, shown: Approval, verdict: Verdict) -> str:
        try:
            return f"{shown.id} is {self._daemon.vote(shown, verdict).state} now."
        except Fault as fault:  # another person was faster, or this one may not vote
            return str(fault)


def watch(*, session: str | None, data_dir: Path | None) -> None:
    """Run the inbox on this terminal."""
    printer = Printer()
    Signals()  # restores the terminal's echo also on SIGTERM and SIGHUP
    with (
        connect(load_settings(data_dir)) as daemon,
        PendingApprovals(daemon, session) as pending,
        _keys(pending.wakeup_fd) as key,
    ):
        printer.progress(f"Waiting for approvals: {HELP}.")
        Inbox(daemon, pending, lambda line: printer.out.print(Text(line), soft_wrap=True), key).run()


@contextmanager
def _keys(wakeup_fd: int) -> Iterator[ReadKey]:
    """Yield a reader of single keys from the terminal, or of characters from a pipe.

    `wakeup_fd`: file descriptor that becomes readable on news.
    """
    before = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None

    def key(seconds: float) -> str:
        ready = select.select([sys.stdin, wakeup_fd], [], [], seconds)[0]
        if wakeup_fd in ready:
            os.read(wakeup_fd, 1024)
        if sys.stdin not in ready:
            return ""
        # Bypasses Python's buffer: select() can't see a key that is buffered already.
        return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") or "q"

    try:
        if before is not None:
            tty.setcbreak(sys.stdin)
        yield key
    finally:
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
