"""Verifies the record: the stream, the API's pages and the database must contain the same log."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from codesdk.cli.api_client import ApiClient
from codesdk.cli.demo.steps import DemoFailed
from codesdk.cli.effective_settings import settings_environment
from codesdk.cli.logs.history import History, fold
from codesdk.cli.logs.replay import ReplayResult
from codesdk.cli.logs.stored_log import read_stored_log
from codesdk.domain.events import Event
from codesdk.settings import Settings

REPLAY_S = 60.0


class RecordCheck:
    """One session's log from three sources."""

    def __init__(self, settings: Settings, daemon: ApiClient, session: str, streamed: list[Event]) -> None:
        self._settings = settings
        self._session = session
        self._streamed = streamed
        self._paged = list(daemon.events(session))
        self.stored = read_stored_log(settings, session).events

    def check_numbers(self) -> int:
        """Return the number of events in the database, which must be numbered from 1 without gaps.

        Raises:
            DemoFailed: a number is missing or out of order.
        """
        numbers = [event.seq for event in self.stored]
        if numbers != list(range(1, len(numbers) + 1)):
            raise DemoFailed(f"The numbers of the log are not dense: {numbers}.")
        return len(numbers)

    def check_same(self) -> None:
        """Compare stream, pages and database event by event.

        Raises:
            DemoFailed: names the first difference.
        """
        for name, other in (("stream", self._streamed), ("HTTP pages", self._paged)):
            if len(other) != len(self.stored):
                raise DemoFailed(f"The {name} had {len(other)} events, the database holds {len(self.stored)}.")
            for one, two in zip(other, self.stored, strict=True):
                if one != two:
                    raise DemoFailed(f"Event {two.seq} differs between the {name} and the database.")

    def check_replay(self) -> History:
        """Replay the log in another process and compare it with the stream's history; return the history.

        Raises:
            DemoFailed: they differ, or the process failed.
        """
        replayed = ReplayResult.model_validate(json.loads(self._replay())).history
        if replayed != fold(self._streamed):
            raise DemoFailed("The replayed history differs from the history of the stream.")
        return replayed

    def _replay(self) -> str:
        argv = [sys.executable, "-m", "codesdk.cli", "events", "replay", self._session, "--json"]
        env = {**os.environ, **settings_environment(self._settings)}
        try:
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=REPLAY_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise DemoFailed(f"The replay did not end within {REPLAY_S:.0f} s.") from error
        if done.returncode:
            raise DemoFailed(f"The replay failed: {done.stderr.strip()}")
        return done.stdout
