"""Helpers of the self check's tests."""

from __future__ import annotations

import itertools
import uuid

from codesdk.sandbox.selfcheck import Plan, ProbeContext

UIDS = itertools.count(260_000 + uuid.uuid4().int % 30_000)


def bench_on(sandboxes, instance, image, **plan):
    return ProbeContext(sandboxes, Plan(instance, image, **plan), uids=UIDS, ids=lambda: uuid.uuid4().hex)
