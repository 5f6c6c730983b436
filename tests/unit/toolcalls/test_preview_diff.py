"""An approver's view of a preview's changes: escaped paths, texts as diffs, all of it bounded."""

from __future__ import annotations

from codesdk.sandbox.port import FileKind, Manifest, ManifestEntry
from codesdk.toolcalls.previews.change_summary import (
    MAX_DIFF_CHARACTERS,
    MAX_DIFFS,
    MAX_PATHS,
    change_summary,
    files_to_diff,
)
from codesdk.toolcalls.previews.effects import affected_paths, effects_hash, effects_of, state_hash, write_conditions


def entry(path, mark="m", *, kind=FileKind.FILE, mode=0o644, size=4):
    return ManifestEntry(path=path, kind=kind, mode=mode, size=size, mark=mark)


def manifest(*entries):
    return Manifest(entries=tuple(sorted(entries, key=lambda each: each.path)))


def show(before, after, old=None, new=None, **more):
    return change_summary(effects_of(before, after), old or {}, new or {}, str, **more)


def test_each_kind_of_change_is_told_in_words():
    link, folder = FileKind.SYMLINK, FileKind.DIRECTORY
    before = manifest(
        entry("mode"), entry("link", "a", kind=link, mode=0o777), entry("gone"), entry("turned"), entry("content")
    )
    after = manifest(
        entry("mode", mode=0o755),
        entry("link", "/etc", kind=link, mode=0o777),
        entry("new", None, kind=folder, mode=0o755),
        entry("turned", "a", kind=link, mode=0o777),
        entry("content", "n", size=9),
    )
    told = {each["path"]: (each["change"], each["what"]) for each in show(before, after)["files"]}
    assert told["mode"] == ("modified", "file, mode 0644 → 0755")
    assert told["link"] == ("modified", "symlink, link to a → /etc")
    assert told["new"] == ("added", "directory, mode 0755")
    assert told["turned"][1].startswith("file, 4 bytes, mode 0644 → link to a")
    assert told["content"][1].startswith("file, 4 → 9 bytes")
    assert told["gone"][0] == "deleted"


def test_texts_are_compared_and_what_is_no_text_says_so():
    before = manifest(entry("a"), entry("b"))
    after = manifest(entry("a", "n"), entry("b", "n"), entry("c", "o"))
    shown = show(before, after, {"a": b"one\n", "b": b"\0"}, {"a": b"two\n", "b": b"x", "c": b"new\n"})
    assert "-one\n+two\n" in shown["diff"]
    assert "+new" in shown["diff"]
    assert shown["files"][1]["what"].endswith("no text that can be shown")


def test_a_change_of_the_mode_alone_needs_no_text():
    before, after = manifest(entry("a")), manifest(entry("a", mode=0o755))
    assert files_to_diff(effects_of(before, after)) == ()
    assert show(before, after)["diff"] == ""


def test_what_is_hidden_shows_no_content():
    before, after = manifest(entry("a")), manifest(entry("a", "n"))
    shown = show(before, after, {"a": b"secret\n"}, {"a": b"other\n"}, hidden=True)
    assert (shown["diff"], shown["files"][0]["path"]) == ("", "a")


def test_many_changes_and_long_texts_are_cut_with_their_counts():
    after = manifest(*(entry(f"f{number:04}") for number in range(MAX_PATHS + 7)))
    new = {f"f{number:04}": b"x\n" * 4000 for number in range(MAX_PATHS)}
    shown = show(manifest(), after, {}, new)
    assert (len(shown["files"]), shown["files_left_out"]) == (MAX_PATHS, 7)
    assert len(shown["diff"]) == MAX_DIFF_CHARACTERS
    assert shown["diff_left_out"] > 0
    assert len(files_to_diff(effects_of(manifest(), after))) == MAX_DIFFS


def test_a_very_long_name_is_cut_with_its_count():
    (told,) = show(manifest(), manifest(entry("d/" * 1500 + "f")))["files"]
    assert told["path"].endswith("… (2001 characters more)")
    assert len(told["path"]) < 1100


def test_times_make_no_difference_and_everything_else_does():
    before = manifest(entry("a"))
    one = effects_of(before, manifest(entry("a", "n")))
    later = ManifestEntry(path="a", kind=FileKind.FILE, mode=0o644, size=4, mark="n", mtime_ns=5)
    assert effects_hash(one) == effects_hash(effects_of(before, Manifest(entries=(later,))))
    for other in (entry("a", "o"), entry("a", "n", mode=0o755), entry("a", "n", size=5)):
        assert effects_hash(one) != effects_hash(effects_of(before, manifest(other)))


def test_the_state_of_a_path_is_all_beneath_it_and_nothing_beside_it():
    held = manifest(
        entry("d", None, kind=FileKind.DIRECTORY), entry("d/a"), entry("dd"), entry("d/fifo", kind=FileKind.OTHER)
    )
    state = state_hash(held, ["d"])
    assert state != state_hash(manifest(entry("d", None, kind=FileKind.DIRECTORY), entry("d/a", "n")), ["d"])
    assert state == state_hash(manifest(*held.entries[:2]), ["d"])
    assert state_hash(held, ["nothing"]) == state_hash(manifest(), ["x"])
    assert state_hash(held, ["."]) != state_hash(manifest(*held.entries[:2]), ["."])


def test_a_change_is_about_what_its_input_names_and_what_it_changed_elsewhere():
    effects = effects_of(manifest(), manifest(entry("d/a"), entry("real/b")))
    assert affected_paths(["/workspace/d", "../out"], effects, "/workspace") == ("d", "real/b")


def test_a_write_lands_on_what_was_there_and_where_nobody_can_say_it_has_no_condition():
    held = manifest(entry("a", "sha256:1"), entry("link", "real", kind=FileKind.SYMLINK), entry("large", None))
    found = write_conditions(held, ["a", "new", "link/x", "link", "large"])
    assert found == {"a": "sha256:1", "new": "absent"}


def test_the_diffs_of_one_preview_share_one_budget():
    """Each of fifty files may be as hard to compare as one; all together they may not take fifty times as long."""
    old, new = b"x\n" * 300, b"y\n" + b"x\nz\n" * 99

    def length(names):
        before, after = manifest(*map(entry, names)), manifest(*(entry(name, "n") for name in names))
        shown = show(before, after, dict.fromkeys(names, old), dict.fromkeys(names, new))
        return len(shown["diff"]) + shown.get("diff_left_out", 0)

    names = [f"f{number:02}" for number in range(MAX_DIFFS)]
    # What is compared keeps the common lines; what is not has them twice.
    assert length(names) - MAX_DIFFS * length(names[:1]) > 20 * 2 * 99
    assert length(names[:5]) == 5 * length(names[:1])
