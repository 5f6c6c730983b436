"""Sandboxes that break one guarantee of the port: the probe of that guarantee fails."""

from __future__ import annotations

import itertools

import pytest

from codesdk.sandbox.port import Chunk, ExitKind
from codesdk.sandbox.selfcheck import PROBES, Status, check
from sandboxes import docker_sandboxes
from selfcheck_bench import bench_on

pytestmark = pytest.mark.engine


class Spoiled:
    """Sandboxes whose execs go through functions that spoil them."""

    def __init__(self, real, request, result, chunk) -> None:
        self._real = real
        self._spoil = request, result, chunk

    def open(self, spec):
        return SpoiledSandbox(self._real.open(spec), *self._spoil)

    def destroy(self, owner) -> None:
        self._real.destroy(owner)


class SpoiledSandbox:
    def __init__(self, real, request, result, chunk) -> None:
        self._real = real
        self._request, self._result, self._chunk = request, result, chunk

    def __getattr__(self, name):
        return getattr(self._real, name)

    def exec(self, request, on_output):
        asked = request if self._request is None else request.model_copy(update=self._request(request))
        hear = on_output if self._chunk is None else lambda chunk: on_output(self._chunk(chunk))
        result = self._real.exec(asked, hear)
        return result if self._result is None else result.model_copy(update=self._result(result))


def _as_text(chunk):
    return Chunk(stream=chunk.stream, offset=chunk.offset, data=chunk.data.decode("utf-8", "replace").encode())


def _stripped(chunk):
    return Chunk(stream=chunk.stream, offset=chunk.offset, data=chunk.data.rstrip())


def _swapped(chunk):
    other = {"stdout": "stderr", "stderr": "stdout"}[chunk.stream]
    return Chunk(stream=other, offset=chunk.offset, data=chunk.data)


def _guessed(result):
    kinds = {124: ExitKind.TIMED_OUT, 137: ExitKind.OOM_KILLED}
    return {"kind": kinds.get(result.exit_code, result.kind)}


def _as_code(result):
    return {} if result.signal is None else {"kind": ExitKind.EXITED, "exit_code": 128 + result.signal, "signal": None}


def _uncounted(result):
    return {"stdout": result.stdout.model_copy(update={"dropped": 0})}


ATTEMPTS = itertools.count(2)


def _new_attempt(request):
    return {"attempt": next(ATTEMPTS)}


def _joined(request):
    return {"argv": ("sh", "-c", " ".join(request.argv))}


SPOILS = {
    "output read as text": ((None, None, _as_text), {"exec-every-byte", "exec-invalid-utf8", "exec-stdin-binary"}),
    "output stripped": ((None, None, _stripped), {"exec-nothing-added"}),
    "streams mixed up": ((None, None, _swapped), {"exec-streams-apart"}),
    "ends guessed from codes": ((None, _guessed, None), {"end-codes-are-not-guessed"}),
    "signals told as codes": ((None, _as_code, None), {"end-own-signal"}),
    "drops not counted": ((None, _uncounted, None), {"exec-dropped-is-counted"}),
    "no CPU counted": ((None, lambda _: {"cpu_s": 0.0}, None), {"end-usage"}),
    "no stdin": ((lambda _: {"stdin": b""}, None, None), {"exec-stdin", "exec-stdin-literal", "exec-stdin-large"}),
    "no environment": ((lambda _: {"env": {}}, None, None), {"exec-environment"}),
    "the worker's environment": (
        (lambda r: {"env": {**r.env, "CODESDK_TOKEN": "x"}}, None, None),
        {"exec-environment-is-not-ours"},
    ),
    "directory ignored": ((lambda _: {"cwd": "."}, None, None), {"exec-directory", "exec-directory-refused"}),
    "every attempt a new one": ((_new_attempt, None, None), {"exec-runs-once", "exec-acknowledged-is-refused"}),
    "words joined for a shell": ((_joined, None, None), {"exec-words", "exec-no-program"}),
    "nothing times out": ((lambda r: {"timeout_s": min(8.0, r.timeout_s + 6)}, None, None), {"end-timeout-children"}),
}


@pytest.fixture(scope="module")
def real(engine):
    with docker_sandboxes(engine.host) as made:
        yield made


@pytest.mark.parametrize("spoil", SPOILS)
def test_probes_see_the_broken_promise(real, sandbox_image, spoil):
    how, seen_by = SPOILS[spoil]
    bench = bench_on(Spoiled(real, *how), real._instance, sandbox_image)
    failed = {probe.name for probe in PROBES if probe.name in seen_by and check(bench, probe).status is Status.FAIL}
    bench.close()
    assert failed == seen_by
