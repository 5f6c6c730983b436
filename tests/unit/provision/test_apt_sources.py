from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codesdk.provision.system.apt_sources import (
    Source,
    configured_sources,
    mirror_of,
    parse_deb822,
    parse_list,
    release_sources,
)

DEB822 = """\
Types: deb deb-src
# a comment inside a stanza
URIs: http://mirror.example/debian/
Suites: bookworm
 bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""


def test_a_one_line_source_with_options_is_read():
    text = "# old\ndeb [arch=amd64 signed-by=/k.gpg] http://m.example/debian/ bookworm main contrib # comment\ndeb-src x y z\n"
    assert parse_list(text) == [Source("http://m.example/debian", "bookworm", ("main", "contrib"))]


def test_deb822_folds_lines_and_skips_disabled_stanzas():
    assert parse_deb822(DEB822) == [
        Source("http://mirror.example/debian", "bookworm", ("main", "contrib")),
        Source("http://mirror.example/debian", "bookworm-updates", ("main", "contrib")),
        Source("http://mirror.example/debian-security", "bookworm-security", ("main",)),
    ]


def test_the_mirror_is_the_archive_of_the_release_and_no_add_on():
    sources = [
        Source("https://packages.vendor.example", "nodistro", ("main",)),
        Source("cdrom:[disc]", "bookworm", ("main",)),
        Source("http://mirror.example/debian-security", "bookworm-security", ("main",)),
        Source("http://mirror.example/debian", "bookworm", ("main",)),
    ]
    assert mirror_of("bookworm", sources) == sources[3]
    assert mirror_of("trixie", sources) is None


def test_the_image_gets_updates_and_security_fixes_but_no_vendor_archives():
    sources = [*parse_deb822(DEB822), Source("https://packages.vendor.example", "nodistro", ("main",))]
    assert [source.suite for source in release_sources("bookworm", sources)] == [
        "bookworm",
        "bookworm-updates",
        "bookworm-security",
    ]


def test_a_mirror_list_file_is_followed_to_its_first_mirror(tmp_path):
    mirrors = tmp_path / "debian.list"
    mirrors.write_text("# mirrors\nhttp://first.example/debian priority:1\nhttp://second.example/debian\n")
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "debian.sources").write_text(
        f"Types: deb\nURIs: mirror+file:{mirrors}\nSuites: bookworm\nComponents: main\n"
    )
    (parts / "debian.sources.save").write_text(
        "Types: deb\nURIs: http://not.example\nSuites: bookworm\nComponents: main\n"
    )
    assert configured_sources(tmp_path) == [Source("http://first.example/debian", "bookworm", ("main",))]


@given(st.text())
def test_no_text_breaks_the_parsers(text):
    for source in [*parse_list(text), *parse_deb822(text)]:
        assert source.suite
