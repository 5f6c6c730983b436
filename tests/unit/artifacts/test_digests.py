from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.artifacts import digests as module
from codesdk.artifacts.digests import DigestMismatch, Hasher, verify_chunks
from codesdk.domain.canonical import bytes_hash


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_BYTES", 8)
        yield


def hashed(content, cuts=()):
    hasher = Hasher()
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        hasher.update(content[start:end])
    return hasher


def cut(content, size):
    return iter([content[n : n + size] for n in range(0, len(content), size)])


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=60), size=st.integers(1, 20), first=st.integers(0, 4))
def test_what_is_right_passes_whole_however_it_is_cut(content, size, first):
    cuts = range(size, len(content), size)
    hasher = hashed(content, cuts)
    assert hasher.digests() == hashed(content).digests()
    assert (hasher.content_hash(), hasher.size) == (bytes_hash(content), len(content))
    part = content[first * 8 :]
    assert b"".join(verify_chunks(cut(part, size), hasher.digests(), first)) == part


@settings(max_examples=100, deadline=None)
@given(content=st.binary(min_size=1, max_size=60), data=st.data())
def test_no_wrong_byte_passes(content, data):
    place = data.draw(st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    damaged[place] ^= data.draw(st.integers(1, 255))
    chunks = verify_chunks(cut(bytes(damaged), 5), hashed(content).digests(), 0)
    before = b"".join(itertools.islice(chunks, place // 8))
    assert before == content[: place // 8 * 8], "all chunks before the damaged one, and nothing of it"
    with pytest.raises(DigestMismatch):
        next(chunks)


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=20))
def test_bytes_too_many_do_not_pass(content, more):
    with pytest.raises(DigestMismatch):
        list(verify_chunks(iter([content + more]), hashed(content).digests(), 0))
