"""The contract of the blobs port, for every implementation."""

from __future__ import annotations

import secrets
import tracemalloc

import pytest

from codesdk.artifacts.blobs import BlobMissing
from codesdk.artifacts.directory import DirectoryBlobs
from codesdk.artifacts.memory import MemoryBlobs
from codesdk.artifacts.s3 import S3Blobs
from codesdk.artifacts.spool import SpoolDirectory
from codesdk.domain.clock import ManualClock, SystemClock

MIB = 1024 * 1024
KEY = "ab" + "0" * 62 + "-0123abcd"


@pytest.fixture(params=["memory", "directory", "s3"])
def blobs(request, tmp_path):
    if request.param == "memory":
        made = MemoryBlobs(ManualClock())
    elif request.param == "directory":
        made = DirectoryBlobs(tmp_path / "artifacts")
    else:
        made = S3Blobs(request.getfixturevalue("s3_server").place(), SystemClock())
    yield made
    made.close()


@pytest.fixture
def put(blobs, tmp_path):
    incoming = SpoolDirectory(tmp_path / "artifacts" / "incoming", 1024 * MIB)

    def put(content=b"content", key=KEY):
        with incoming.spool() as spool:
            spool.write(content)
            blobs.put(key, spool)
        return key

    return put


def whole(blobs, key, *part):
    return b"".join(blobs.read(key, *part))


def test_bytes_come_back_as_they_went_in(blobs, put):
    content = secrets.token_bytes(300_000)
    put(content)
    assert whole(blobs, KEY) == content
    assert blobs.size(KEY) == len(content)


def test_nothing_is_something_too(blobs, put):
    put(b"")
    assert (whole(blobs, KEY), blobs.size(KEY)) == (b"", 0)


@pytest.mark.parametrize(("start", "length"), [(0, 1), (5, 3), (9, None), (0, 10), (9, 1)])
def test_a_part_is_that_part(blobs, put, start, length):
    put(b"0123456789")
    assert whole(blobs, KEY, start, length) == b"0123456789"[start : None if length is None else start + length]


def test_a_part_past_the_end_is_missing_and_never_short(blobs, put):
    put(b"0123456789")
    for part in ((5, 6), (10, 1), (50, 1)):
        with pytest.raises(BlobMissing):
            whole(blobs, KEY, *part)


def test_a_key_without_bytes_says_so(blobs):
    assert blobs.size(KEY) is None
    with pytest.raises(BlobMissing):
        whole(blobs, KEY)
    blobs.delete(KEY)


def test_putting_again_replaces_the_bytes(blobs, put):
    put(b"one")
    put(b"three")
    assert whole(blobs, KEY) == b"three"


def test_what_is_deleted_is_gone_and_the_rest_stays(blobs, put):
    other = put(b"other", KEY.replace("a", "b"))
    put()
    blobs.delete(KEY)
    assert blobs.size(KEY) is None
    assert whole(blobs, other) == b"other"


def test_every_key_is_listed_once_with_its_size(blobs, put):
    keys = {put(b"x" * n, f"{n:02x}{KEY[2:]}"): n for n in range(5)}
    assert {found.key: found.size for found in blobs.keys()} == keys  # noqa: SIM118 (no mapping)


def test_a_spool_that_is_given_up_leaves_nothing(blobs, tmp_path):
    incoming = SpoolDirectory(tmp_path / "artifacts" / "incoming", MIB)
    with incoming.spool() as spool:
        spool.write(b"x")
    assert list((tmp_path / "artifacts" / "incoming").iterdir()) == []
    assert list(blobs.keys()) == []


@pytest.mark.parametrize("blobs", ["directory", "s3"], indirect=True)
def test_a_large_one_passes_in_little_memory(blobs, tmp_path):
    size, piece = 96 * MIB, secrets.token_bytes(MIB)
    incoming = SpoolDirectory(tmp_path / "artifacts" / "incoming", size)
    tracemalloc.start()
    try:
        with incoming.spool() as spool:
            for _ in range(size // MIB):
                spool.write(piece)
            blobs.put(KEY, spool)
        read = sum(len(got) for got in blobs.read(KEY))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read == size
    # An upload to S3 has two parts of 16 MiB under way, and each is signed from memory.
    assert peak < 48 * MIB, f"{peak / MIB:.0f} MiB"


def test_an_upload_that_never_ended_is_swept_once_it_is_old(s3_server):
    place = s3_server.place()
    blobs, client = S3Blobs(place, SystemClock()), s3_server.client()
    begun = client.create_multipart_upload(Bucket=place.bucket, Key=f"{place.prefix}ab/{KEY}")
    client.upload_part(
        Bucket=place.bucket, Key=f"{place.prefix}ab/{KEY}", UploadId=begun["UploadId"], PartNumber=1, Body=b"half"
    )
    assert blobs.size(KEY) is None
    assert blobs.sweep(3600.0) == 0
    assert blobs.sweep(-3600.0) == 1
    assert blobs.sweep(-3600.0) == 0
    blobs.close()
    client.close()


def test_objects_of_others_under_the_prefix_are_not_ours(s3_server):
    place = s3_server.place()
    blobs, client = S3Blobs(place, SystemClock()), s3_server.client()
    for name in ("readme", "ab/cd/ef", "ab/cdef"):
        client.put_object(Bucket=place.bucket, Key=f"{place.prefix}{name}", Body=b"")
    assert list(blobs.keys()) == []
    blobs.close()
    client.close()
