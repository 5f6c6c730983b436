"""Images, documents and binary output: an agent sees the image, or what the file is, and never bytes as text."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from builtin_stage import context, output, use
from codesdk.domain.decisions import Redaction
from codesdk.domain.media import read_image
from codesdk.domain.redaction import Redactor
from stage import Room, said


def png(width, height, size=100):
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\xff" * size


def jpeg(width, height):
    app = b"\xff\xe0" + struct.pack(">H", 4) + b"JF"
    return b"\xff\xd8" + app + b"\xff\xff\xc2" + struct.pack(">HBHH", 11, 8, height, width) + b"\x01\x01\x11\0\xff\xd9"


IMAGES = {
    "image/png": png(640, 480),
    "image/jpeg": jpeg(640, 480),
    "image/gif": b"GIF89a" + struct.pack("<HH", 640, 480) + b"\xff",
    "image/webp": b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + b"\x7f\x02\0" + b"\xdf\x01\0" + b"\xff",
}


@pytest.mark.parametrize("mime_type", IMAGES)
def test_an_image_is_attached_and_described(mime_type):
    room, attached = Room(), []
    room.files.put("a", IMAGES[mime_type])
    result = use("workspace.read", {"path": "a"}, context(room, attach=attached.append))
    assert [(each.content_type, each.content) for each in attached] == [(mime_type, IMAGES[mime_type])]
    assert "640 x 480 pixels" in result.text
    assert result.structured["media"] == {
        "type": mime_type, "width": 640, "height": 480, "bytes": len(IMAGES[mime_type])
    }  # fmt: skip


@pytest.mark.parametrize(
    "data", [png(2001, 10), png(10, 2001), png(0, 10), png(10, 10, size=1024 * 1024), jpeg(60_000, 60_000)]
)
def test_an_image_that_is_too_large_is_refused_with_how_to_make_it_smaller(data):
    room, attached = Room(), []
    room.files.put("a b.png", data)
    result = use("workspace.read", {"path": "a b.png"}, context(room, attach=attached.append))
    assert (result.code, attached) == ("IMAGE_TOO_LARGE", [])
    assert "convert 'a b.png' -resize '1500x1500>'" in result.text


@pytest.mark.parametrize("cut", range(1, 30))
@pytest.mark.parametrize("mime_type", IMAGES)
def test_a_header_that_is_cut_off_is_no_fault(mime_type, cut):
    image = read_image(IMAGES[mime_type][:cut])
    assert image is None or image.mime_type == mime_type


def test_an_image_is_not_shown_where_policy_redacts():
    room, attached = Room(), []
    room.files.put("a", png(10, 10))
    at = context(room, attach=attached.append, redactor=Redactor([Redaction(literal="secret")]))
    assert (use("workspace.read", {"path": "a"}, at).code, attached) == ("NOT_TEXT", [])


@pytest.mark.parametrize(
    ("data", "named", "command"),
    [
        (b"%PDF-1.7 all of it is text\n", "a PDF document", "pdftotext -layout 'a b' -"),
        (b"PK\x03\x04\xff\x00", "a ZIP archive", "unzip -l 'a b'"),
        (b"\x1f\x8b\x08\xff", "gzip data", "zcat 'a b'"),
        ("ü".encode("utf-16"), "UTF-16 text", "iconv -f utf-16 -t utf-8 'a b'"),
        ("Grüße an alle, die das hier lesen".encode("latin-1"), "another encoding", "iconv -f latin1 -t utf-8 'a b'"),
        (bytes(range(256)), "binary data", "xxd 'a b' | head"),
        (bytes(5000), "binary data", "xxd 'a b' | head"),
    ],
)
def test_what_is_no_text_is_named_with_a_command_that_shows_it(data, named, command):
    room = Room()
    room.files.put("a b", data)
    result = use("workspace.read", {"path": "a b"}, context(room))
    assert (result.code, named in result.text, result.text.endswith(command)) == ("NOT_TEXT", True, True)


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 300, png(10, 10, 70_000), b"\x1f\x8b\x08" + b"\xe9\x01" * 9000, bytes(9000)]
)
def test_binary_output_of_a_command_is_counted_and_not_shown(data):
    result = use("workspace.exec", {"command": "cat a"}, context(Room(said(data, ("stderr", b"note")))))
    assert result.structured["stdout"].startswith(f"[{len(data)} bytes of binary output")
    assert (result.stdout.shown, result.structured["stderr"]) == (0, "note")
    assert not {"\ufffd", "\x00"} & set(result.text)


@pytest.mark.parametrize(
    "data", ["Grüße, wie früher in Latin-1".encode("latin-1"), b"a.py\0b.py\0", b"\x1b[31mred\x1b[0m\n"]
)
def test_output_that_people_can_read_is_shown(data):
    result = use("workspace.exec", {"command": "cat a"}, context(Room(said(data))))
    assert result.structured["stdout"] == data.decode("utf-8", "replace")


def test_an_output_that_is_binary_is_not_read_as_text():
    at = replace(context(Room()), find_output=output(bytes(range(256)) * 100))
    result = use("workspace.read", {"path": "codesdk://artifacts/art_1"}, at)
    assert (result.code, "25600 bytes" in result.text) == ("NOT_TEXT", True)
