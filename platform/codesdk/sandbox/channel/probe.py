"""What a process with the tool's rights sees, asked of a runner when its sandbox is attested."""

from __future__ import annotations

import json
import time
from queue import Empty
from typing import Any

from codesdk.sandbox.channel.connection import ConnectionLost, Header, Key, RunnerConnection
from codesdk.sandbox.channel.output_tracker import OutputTracker
from codesdk.sandbox.port.faults import RunnerRefused

PROBE_BYTES = 1 << 20
"""Most that a probe may say: a twentieth of it is usual."""


class ProbeFailed(Exception):
    """The probe did not say what it saw, whole and in time. Internal: `session` says that the sandbox is gone."""


def observe(link: RunnerConnection, key: Key, generation: int, answer_s: float) -> dict[str, Any]:
    """Run the probe as the exec `key`. `answer_s`: how long the runner may be silent; all of it may take twice that.

    Raises:
        Unobserved: see there. RunnerRefused: it did not start, or its output makes no sense.
    """
    events = link.listen(key)
    spec = json.dumps({"argv": ["probe"], "cwd": ".", "env": {}, "probe": True}).encode()
    header: Header = {
        "op": "start", "probe": True, "call": key[0], "attempt": key[1], "generation": generation,
        "spec_bytes": len(spec), "timeout_s": answer_s, "grace_s": 0.0, "keep_bytes": PROBE_BYTES,
    }  # fmt: skip
    text, why, received = bytearray(), "", OutputTracker(PROBE_BYTES)
    deadline = time.monotonic() + 2 * answer_s
    try:
        answer, _ = link.call(header, spec, timeout_s=answer_s)
        if "error" in answer:
            raise RunnerRefused(f"The runner refused to be probed: {answer}")
        while True:
            message = link.next(events, max(0.0, min(answer_s, deadline - time.monotonic())))
            if message.header.get("event") == "exit":
                why = str(message.header.get("result"))
                break
            if received.take(message.header, len(message.body))[0] == 0:
                text += message.body
        found = json.loads(text)
    except (ConnectionLost, Empty, ValueError, RecursionError) as error:
        raise ProbeFailed(f"its probe failed: {error!r} {bytes(text[:200])!r} {why}") from error
    finally:
        link.unlisten(key)
    if not isinstance(found, dict):
        raise ProbeFailed("its probe answered nonsense")
    return found
