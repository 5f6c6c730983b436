"""In any order of steps, each call has one valid history, nothing runs twice, and every call ends."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from codesdk.registry import Registry
from codesdk.storage.database import Database
from codesdk.storage.migration import upgrade
from schedules import World
from stage import REPOSITORY

SCHEDULES = int(os.environ.get("SCHEDULES", "100"))
"""How many are played, `FIRST_SCHEDULE` and those after it; some thousands take minutes."""
FIRST = int(os.environ.get("FIRST_SCHEDULE", "0"))
TOGETHER = 20
"""Schedules of one test; `make test` plays the first of these."""
BLOCKS = range(FIRST, FIRST + SCHEDULES, TOGETHER)


@pytest.fixture
def play(tmp_path):
    """Plays the schedule of a seed; one that fails shows its steps."""
    template, registry = Database.in_memory(), Registry.load(REPOSITORY / "tool-registry")
    upgrade(template)

    def played(seed):
        copy = Database.in_memory()
        with template.reader.connect() as source, copy.writer.connect() as target:
            source.connection.dbapi_connection.backup(target.connection.dbapi_connection)
        world = World(seed, tmp_path, copy.url.render_as_string(), registry)
        try:
            world.play()
            return world.verify(), world.steps
        except BaseException as error:
            raise AssertionError(f"schedule {seed}: {error!r}\n{world}") from error
        finally:
            world.close()
            copy.close()

    yield played
    template.close()


@pytest.mark.parametrize("first", [BLOCKS[0], *(pytest.param(each, marks=pytest.mark.full) for each in BLOCKS[1:])])
def test_every_schedule_ends_with_one_lawful_history_for_each_call_and_no_attempt_that_ran_twice(play, first):
    ends, seeds = Counter(), range(first, min(first + TOGETHER, FIRST + SCHEDULES))
    for seed in seeds:
        ends += play(seed)[0]
    assert ends["ok"] > len(seeds), ends


def test_a_schedule_is_the_same_each_time_that_it_is_played(play):
    assert play(7) == play(7)
