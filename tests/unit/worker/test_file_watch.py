"""Changes in a watched workspace become events: in order, bounded, and marked if any are missing."""

from __future__ import annotations

import pytest

from codesdk.sandbox.port import Change, ChangeKind, FileWrite
from codesdk.sandbox.runner.workspace.watches import MAX_WAITING
from codesdk.storage.database import StorageUnavailable
from codesdk.worker.workspaces import file_watch
from codesdk.worker.workspaces.file_watch import FileWatch, batch_changes


class Watch:
    """A worker's watch, looked through by hand."""

    def __init__(self, crew, subject):
        self.crew, self.subject = crew, subject
        crew.sandbox_registry.reconcile()
        self.watching = self.of(crew)

    @staticmethod
    def of(crew):
        stage = crew.stage
        return FileWatch(
            sandbox_registry=crew.sandbox_registry, host=crew.host, database=stage.database, log=stage.log, writer=stage.writer,
            clock=stage.clock,
        )  # fmt: skip

    def look(self, seconds=file_watch.PAUSE_S):
        self.crew.stage.clock.advance(seconds)
        self.watching.look()

    def write(self, *paths, content=b"1"):
        files = self.crew.sandbox_registry.ready(self.subject.session_id).files
        for start in range(0, len(paths), 500):
            files.write(tuple(FileWrite(path=path, content=content) for path in paths[start : start + 500]))

    def told(self):
        events = self.crew.stage.events(self.subject)
        return [event.payload for event in events if event.type == "sandbox.files_changed"]


@pytest.fixture
def watch(crew):
    return Watch(crew, crew.stage.open_session(watch=True))


def paths(payload):
    return [(change["kind"], change["path"]) for change in payload["changes"]]


def test_changes_of_a_watched_workspace_are_told_in_order_and_once(watch):
    watch.look()
    watch.write("a")
    watch.write("b")
    watch.look()
    watch.look()
    assert [payload["phase"] for payload in watch.told()] == ["begun", "changed"]
    assert paths(watch.told()[1]) == [("created", "a"), ("created", "b")]
    assert watch.told()[0]["method"] == "inotify"


def test_a_session_that_did_not_ask_for_it_is_not_watched(crew):
    watch = Watch(crew, crew.stage.open_session())
    watch.look()
    watch.write("a")
    watch.look()
    assert watch.told() == []


def test_no_more_than_one_event_a_second_is_told(watch):
    watch.look()
    for number in range(10):
        watch.write(f"f{number}")
        watch.look(0.05)
    assert len(watch.told()) == 1
    watch.look()
    assert len(paths(watch.told()[1])) == 10


def test_a_workspace_that_never_rests_is_looked_at_more_seldom(watch):
    watch.look()
    for number in range(60):
        watch.write(f"f{number}")
        watch.look()
    assert file_watch.BUSY_EVENTS < len(watch.told()) < 30


def test_what_one_event_cannot_hold_is_counted(watch):
    watch.look()
    names = [f"f{number:04}" for number in range(file_watch.EVENT_CHANGES + 7)]
    watch.write(*names)
    watch.look()
    told = watch.told()[1]
    assert [path for _, path in paths(told)] == names[: file_watch.EVENT_CHANGES]
    assert told["dropped"] == 7


def test_what_the_runner_lost_is_said_to_be_lost(watch):
    watch.look()
    watch.write(*[f"f{number}" for number in range(MAX_WAITING + 3)])
    watch.look()
    told = watch.told()[1]
    assert told["lost"] == ["."]


def test_what_could_not_be_stored_is_told_later(watch, monkeypatch):
    watch.look()
    watch.write("a")
    with monkeypatch.context() as broken:

        def refuse(*_given):
            raise StorageUnavailable("the database is away")

        broken.setattr(watch.watching._log, "append", refuse)
        watch.look()
    assert len(watch.told()) == 1
    watch.look(file_watch.RETRY_S)
    assert paths(watch.told()[1]) == [("created", "a")]


def test_the_next_worker_begins_anew_and_says_so(watch):
    watch.look()
    later = watch.crew.next()
    again = Watch.of(later)
    later.stage.clock.advance(1)
    again.look()
    later.sandbox_registry.ready(watch.subject.session_id).files.write((FileWrite(path="a", content=b"1"),))
    later.stage.clock.advance(1)
    again.look()
    later.close()
    assert [payload["phase"] for payload in watch.told()] == ["begun", "begun", "changed"]


def test_a_watch_that_ended_is_begun_anew_and_both_are_said(watch):
    watch.look()
    files = watch.crew.sandbox_registry.ready(watch.subject.session_id).files
    files.unwatch("watch_1")
    watch.look()
    watch.look()
    assert [payload["phase"] for payload in watch.told()] == ["begun", "begun"]


def test_a_workspace_that_cannot_be_watched_says_why_once(watch):
    files = watch.crew.sandbox_registry.ready(watch.subject.session_id).files
    taken = [files.watch() for _ in range(8)]
    watch.look()
    watch.look(file_watch.RETRY_S)
    assert [(payload["phase"], payload["reason"]) for payload in watch.told()] == [
        ("ended", "more than 8 watches at once")
    ]
    files.unwatch(taken[0].id)
    watch.look(file_watch.RETRY_S)
    assert watch.told()[-1]["phase"] == "begun"


def change(path, kind=ChangeKind.CHANGED, source=None):
    return Change(kind=kind, path=path, source=source)


def test_repeated_changes_of_one_file_are_one():
    kept, dropped, _ = batch_changes([change("a")] * 3 + [change("b"), change("a")])
    assert [item.path for item in kept] == ["a", "b", "a"]
    assert dropped == 0


def test_paths_of_an_event_are_bounded_in_bytes():
    kept, dropped, _ = batch_changes([change(f"{number}{'ß' * 2000}") for number in range(100)])
    assert 0 < len(kept) < 20
    assert len(kept) + dropped == 100


def test_a_path_that_is_no_text_is_told_all_the_same():
    kept, _, _ = batch_changes([change("a\udcff", ChangeKind.MOVED, "b\udcff")])
    assert (kept[0].path, kept[0].source) == ("a?", "b?")


def test_a_sandbox_that_went_away_under_a_look_takes_no_connection_from_the_one_after_it(watch, monkeypatch):
    sandbox_registry, session = watch.crew.sandbox_registry, watch.subject.session_id
    watch.look()
    before, reach, made = sandbox_registry.ready(session), sandbox_registry.reach, []

    def late(asked):
        monkeypatch.setattr(sandbox_registry, "reach", reach)
        sandbox = reach(asked)
        watch.crew.sandboxes.crash(before.owner)
        assert sandbox_registry.lose(asked, before)  # a call met it first, and had it brought back
        made.append(sandbox_registry.ready(asked))
        return sandbox

    monkeypatch.setattr(sandbox_registry, "reach", late)
    watch.look()
    after = sandbox_registry.live(session)
    assert after not in (None, before)
    assert after is made[0]
