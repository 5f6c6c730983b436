"""The runner's watches without a container: both methods, their bounds, and queued changes."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.sandbox.runner import kernel
from codesdk.sandbox.runner.workspace import file_watcher, files, watches
from codesdk.sandbox.runner.workspace.names import spell
from codesdk.sandbox.runner.workspace.root import Root
from stage import wait_for


@pytest.fixture
def root(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    found = Root(str(workspace))
    yield found
    os.close(found.fd)


@pytest.fixture(params=[file_watcher.InotifyWatcher, file_watcher.PollingWatcher])
def open_eye(request, root):
    opened = []

    def open_one(top="."):
        opened.append(request.param(root, top))
        return opened[-1]

    yield open_one
    for eye in opened:
        eye.close()


@pytest.fixture
def here(root):
    return Path(root.workspace)


def told(eye, times=3):
    """What a few reads tell: a burst may be more than one of the kernel's answers."""
    found = []
    for _ in range(times):
        found += eye.read()
    return found


def test_a_move_within_is_one_change_and_what_comes_after_has_the_new_path(open_eye, here):
    (here / "a/deep").mkdir(parents=True)
    (here / "a/deep/file").write_text("1")
    eye = open_eye()
    (here / "a").rename(here / "b")
    assert told(eye) == [("moved", "b", "a")]
    (here / "b/deep/file").write_text("22")
    assert ("changed", "b/deep/file", "") in told(eye)


def test_what_is_moved_out_is_deleted_and_seen_no_more(open_eye, here, tmp_path):
    (here / "a/b").mkdir(parents=True)
    eye = open_eye()
    (here / "a").rename(tmp_path / "outside")
    assert ("deleted", "a", "") in told(eye)
    (tmp_path / "outside/b/file").write_text("not ours")
    assert told(eye) == []


def test_what_is_moved_in_is_told_with_all_that_it_holds(open_eye, here, tmp_path):
    (tmp_path / "other/b").mkdir(parents=True)
    (tmp_path / "other/b/file").write_text("")
    eye = open_eye()
    (tmp_path / "other").rename(here / "in")
    assert {("created", path, "") for path in ("in", "in/b", "in/b/file")} <= set(told(eye))


def test_a_directory_that_takes_anothers_name_is_told_apart_from_it(open_eye, here):
    """mkdir a; mv a b; mkdir a, before anybody looked: both are watched, each by its own name."""
    eye = open_eye()
    (here / "a").mkdir()
    (here / "a").rename(here / "b")
    (here / "a").mkdir()
    told(eye)
    (here / "a/in-a").write_text("")
    (here / "b/in-b").write_text("")
    assert {("created", "a/in-a", ""), ("created", "b/in-b", "")} <= set(told(eye))


def test_a_link_to_a_directory_is_an_entry_and_nothing_beneath_it_is_seen(open_eye, here, tmp_path):
    (tmp_path / "outside").mkdir()
    eye = open_eye()
    (here / "link").symlink_to(tmp_path / "outside")
    assert told(eye) == [("created", "link", "")]
    (tmp_path / "outside/secret").write_text("")
    assert told(eye) == []


def test_a_directory_that_becomes_a_link_while_it_is_looked_at_leads_nowhere(open_eye, here, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            (here / "place").mkdir()
            (here / "place").rmdir()
            (here / "place").symlink_to(tmp_path / "outside")
            (here / "place").unlink()

    thread = threading.Thread(target=swap)
    eye = open_eye()
    thread.start()
    try:
        seen = [change for _ in range(200) for change in eye.read()]
    finally:
        stop.set()
        thread.join(10)
    assert not any("secret" in path for _, path, _ in seen)


def test_a_name_that_is_no_utf_8_is_a_name(open_eye, here):
    eye = open_eye()
    Path(os.fsdecode(os.fsencode(here) + b"/\xff\xfe")).write_text("")
    ((_, path, _), *_) = told(eye)
    assert spell(path) == "\\xff\\xfe"


def test_our_own_temporary_files_are_not_told(open_eye, here):
    eye = open_eye()
    name = files.temporary_name()
    (here / name).write_text("x")
    (here / name).rename(here / "written")
    assert [change for change in told(eye) if change[0] != "changed"] == [("created", "written", "")]


def test_a_watched_directory_that_is_replaced_is_the_end(open_eye, here):
    (here / "top").mkdir()
    eye = open_eye("top")
    (here / "top").rename(here / "away")
    (here / "top").mkdir()
    with pytest.raises(file_watcher.WatchEnded, match="moved"):
        told(eye)


def test_when_the_kernels_queue_overflows_all_is_watched_again(root, here):
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    eye = file_watcher.InotifyWatcher(root, ".")
    try:
        one, other = here / "one", here / "other"
        one.write_text("")
        for _ in range(limit // 2 + 10):
            one.rename(other)
            other.rename(one)
        (here / "new").mkdir()
        seen = []
        while part := eye.read():
            seen += part
        assert ("overflow", ".", "") in seen
        (here / "new/file").write_text("")
        assert ("created", "new/file", "") in told(eye)
    finally:
        eye.close()


def test_more_directories_than_may_be_watched_are_a_limit(root, here, monkeypatch):
    monkeypatch.setattr(file_watcher, "MAX_DIRECTORIES", 4)
    eye = file_watcher.InotifyWatcher(root, ".")
    for number in range(5):
        (here / str(number)).mkdir()
    with pytest.raises(OSError, match="too many") as raised:
        told(eye)
    assert raised.value.errno in file_watcher.LIMITS
    eye.close()


def test_more_than_can_be_looked_at_is_the_end(root, here, monkeypatch):
    monkeypatch.setattr(file_watcher, "MAX_POLLED_ENTRIES", 4)
    eye = file_watcher.PollingWatcher(root, ".")
    for number in range(5):
        (here / str(number)).write_text("")
    with pytest.raises(file_watcher.WatchEnded, match="cannot be polled"):
        eye.read()


def changes(count, kind="created"):
    return [(kind, f"path-{number}", "") for number in range(count)]


def test_what_waits_is_bounded_in_number_and_an_overflow_says_what_was_lost():
    watch = watches._Watch("top")
    watch.put(changes(watches.MAX_WAITING + 3))
    assert [change[1:] for change in watch.read(0, 10)] == [
        ("overflow", "top", ""),
        ("created", f"path-{watches.MAX_WAITING + 1}", ""),
        ("created", f"path-{watches.MAX_WAITING + 2}", ""),
    ]


def test_what_waits_is_bounded_in_bytes():
    watch = watches._Watch("top")
    watch.put([("created", "x" * 4000 + str(number), "") for number in range(1000)])
    assert sum(len(path) for _, _, path, _ in watch.read(0, 5000)) <= watches.MAX_WAITING_BYTES
    assert watch.waiting[0][1] == "overflow"


def test_a_change_that_was_read_does_not_swallow_the_next_of_the_same_file():
    watch = watches._Watch(".")
    watch.put(changes(1, "changed") * 3)
    (first,) = watch.read(0, 10)
    watch.put(changes(1, "changed"))
    assert [number for number, *_ in watch.read(first[0], 10)] == [first[0] + 1]


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.booleans(), max_size=40))
def test_a_reader_that_repeats_its_questions_reads_every_change_once_and_in_order(bursts, repeats):
    watch, after, seen, sent = watches._Watch("."), 0, [], 0
    for burst, repeat in zip(bursts, repeats + [False] * len(bursts), strict=False):
        watch.put([("created", str(sent + number), "") for number in range(burst)])
        sent += burst
        part = watch.read(after, 2)
        if repeat:
            assert watch.read(after, 2) == part  # the answer was lost
        seen += [path for _, _, path, _ in part]
        after = part[-1][0] if part else after
    while part := watch.read(after, 2):
        seen += [path for _, _, path, _ in part]
        after = part[-1][0]
    assert seen == [str(number) for number in range(sent)]


class Stage:
    """A loop whose hand works at once."""

    def __init__(self):
        self.watched = {}
        self.answers = []

    def watch(self, fd, events, handler):
        del events
        self.watched[fd] = handler

    def forget(self, fd):
        self.watched.pop(fd, None)

    def submit(self, work):
        work()()

    def later(self, number):
        del number
        return lambda header, body=b"": self.answers.append((header, body))


class Asked:
    number = 1

    def __init__(self, **header):
        self.header = header


@pytest.fixture
def stage(root):
    made = Stage()
    made.watches = watches.Watches(made, lambda: root, lambda: made, made.later, use_inotify=True)
    yield made
    for identity in list(made.watches._watches):
        made.watches._end(identity)


def test_at_the_kernels_limit_a_watch_begins_by_looking(stage, monkeypatch):
    def full():
        raise OSError(errno.EMFILE, "too many instances")

    monkeypatch.setattr(kernel, "inotify", full)
    stage.watches._open(Asked(op="watch.open", path="."))
    assert stage.answers[0][0]["method"] == "polling"


def test_at_the_kernels_limit_later_on_an_overflow_is_told_and_looking_takes_over(stage, here, monkeypatch):
    stage.watches._open(Asked(op="watch.open", path="."))
    identity = stage.answers.pop()[0]["id"]

    def full(*_):
        raise OSError(errno.ENOSPC, "too many watches")

    monkeypatch.setattr(kernel, "inotify_add", full)
    (here / "new").mkdir()
    (handler,) = stage.watched.values()
    handler()
    watch = stage.watches._watches[identity]
    assert [kind for _, kind, _, _ in watch.waiting][-1] == "overflow"
    assert isinstance(watch.watcher, file_watcher.PollingWatcher)
    (here / "new/file").write_text("")
    watch.poll_at = 0.0
    stage.watches.tick()
    assert ("created", "new/file", "") in [change[1:] for change in watch.waiting]


def test_a_watch_that_nobody_reads_ends_and_its_descriptor_with_it(stage, monkeypatch):
    stage.watches._open(Asked(op="watch.open", path="."))
    ((fd, _),) = stage.watched.items()
    monkeypatch.setattr(watches, "IDLE_TIMEOUT_S", 0.0)
    stage.watches.tick()
    assert stage.watches._watches == {}
    wait_for(lambda: not Path(f"/proc/self/fd/{fd}").exists(), "the descriptor is closed")


def test_a_tree_of_many_files_that_is_moved_in_is_told_in_part_and_marked(root, here, tmp_path, monkeypatch):
    monkeypatch.setattr(file_watcher, "MAX_FOUND", 10)
    outside = tmp_path / "outside"
    outside.mkdir()
    for number in range(50):
        (outside / str(number)).write_text("")
    with contextlib.closing(file_watcher.InotifyWatcher(root, ".")) as eye:
        outside.rename(here / "inside")
        found = told(eye)
    assert len(found) == 11
    assert found[-1] == ("overflow", ".", "")


def test_a_directory_of_more_directories_than_may_be_watched_is_a_limit_before_all_were_listed(root, here, monkeypatch):
    for number in range(20):
        (here / str(number)).mkdir()
    monkeypatch.setattr(file_watcher, "MAX_DIRECTORIES", 10)
    with pytest.raises(OSError, match="too many directories"):
        file_watcher.InotifyWatcher(root, ".")


def test_one_directory_of_more_entries_than_can_be_looked_at_is_the_end(root, here, monkeypatch):
    for number in range(20):
        (here / str(number)).write_text("")
    monkeypatch.setattr(file_watcher, "MAX_POLLED_ENTRIES", 10)
    with pytest.raises(file_watcher.WatchEnded):
        file_watcher.PollingWatcher(root, ".")
