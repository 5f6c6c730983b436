from __future__ import annotations

from codesdk.provision.images.base_image import content_label


def test_the_label_names_the_content_and_differs_between_releases():
    assert content_label("bookworm") == content_label("bookworm")
    assert content_label("bookworm") != content_label("trixie")
    assert content_label("bookworm").startswith("sha256:")
