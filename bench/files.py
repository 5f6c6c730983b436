"""Measures a file of 10 MB up and down over HTTP, as governed calls, and the same with `docker cp`.

`file_10mb_ms` holds `up` and `down` of CodeSDK, `docker_cp_10mb_ms` those of the engine's API (docker SDK `put_archive`
and `get_archive`, which is what `docker cp` calls), in turn, in one run. The ratios are of their medians.
"""

from __future__ import annotations

import io
import os
import statistics
import tarfile
import time
from collections.abc import Callable

import httpx2
from docker import DockerClient

from codesdk.cli.stack.stack import Stack
from codesdk.sessions import NewSession

BYTES = 10_000_000
ROUNDS = 10
AIM = 3.0
"""Target: at most so many times `docker cp`."""


def measure(
    stack: Stack, client: DockerClient, image: str, say: Callable[[str], None]
) -> dict[str, dict[str, float] | float]:
    """Return medians in milliseconds, and their ratios."""
    say(f"{ROUNDS} files of 10 MB up and down, and as many with docker cp")
    session = stack.daemon.open_session(NewSession(labels={"opened-by": "bench"})).session.id
    peer = client.containers.run(image, entrypoint=["sleep"], command=["600"], network_mode="none", detach=True)
    names = ("up", "down", "docker_cp_up", "docker_cp_down")
    times: dict[str, list[float]] = {name: [] for name in names}
    try:
        with httpx2.Client(
            base_url=stack.daemon.url, headers={"Authorization": f"Bearer {stack.key}"}, timeout=60.0
        ) as http:
            where = f"/v1/sessions/{session}/files?path=large"
            for number in range(-1, ROUNDS):
                content = os.urandom(BYTES)
                began = [time.perf_counter()]
                http.put(where, content=content).raise_for_status()
                began.append(time.perf_counter())
                assert http.get(where).raise_for_status().content == content
                began.append(time.perf_counter())
                peer.put_archive("/tmp", _tar(content))
                began.append(time.perf_counter())
                pieces, _ = peer.get_archive("/tmp/large")
                assert len(b"".join(pieces)) > BYTES
                began.append(time.perf_counter())
                if number >= 0:  # the first one warms up
                    for name, start, end in zip(names, began, began[1:], strict=False):
                        times[name].append((end - start) * 1000)
    finally:
        peer.remove(force=True)
        stack.daemon.close_session(session)
    middle = {name: round(statistics.median(values), 1) for name, values in times.items()}
    return {
        "file_10mb_ms": {"up": middle["up"], "down": middle["down"]},
        "docker_cp_10mb_ms": {"up": middle["docker_cp_up"], "down": middle["docker_cp_down"]},
        "file_10mb_up / docker_cp": round(middle["up"] / middle["docker_cp_up"], 2),
        "file_10mb_down / docker_cp": round(middle["down"] / middle["docker_cp_down"], 2),
    }


def _tar(content: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        entry = tarfile.TarInfo("large")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()
