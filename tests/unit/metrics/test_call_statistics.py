"""Ended calls and answers are counted in the transaction that writes them, each once, in the right duration bucket."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from codesdk.approvals import Verdict
from codesdk.domain.calls import IllegalTransition
from codesdk.domain.ids import HostId
from codesdk.domain.tool_results import ToolResult
from codesdk.metrics.call_statistics import call_statistics_metrics
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.records.call_record import CallDurations
from codesdk.toolcalls.statistics import store as statistics
from codesdk.toolcalls.statistics.store import ANSWER_BOUNDS_MS, CALL_BOUNDS_MS, UNBOUNDED, HistogramBucket, Series

DONE = ToolResult(text="done")


def counted(stage):
    with stage.database.read() as connection:
        return statistics.all_buckets(connection)


def of(stage, series):
    return [tally for tally in counted(stage) if tally.series == series.value]


def command(stage, number):
    return stage.pipeline.submit("workspace.exec", {"command": f"echo {number}"}, stage.subject)


def run(stage, result=DONE):
    """Claim the next call and end it."""
    claimed = stage.claims().take()
    stage.writer.run(lambda unit: end(unit, stage, claimed, result))
    return claimed


def end(unit, stage, claimed, result=DONE):
    complete(unit, stage.log, claimed, result, result_ref=None, last_output=(), duration_ms=0.0)


def test_an_end_is_counted_by_its_code_and_by_how_long_it_was_queued_and_ran(stage):
    for number, result in enumerate((DONE, ToolResult(text="no", is_error=True, code="TIMEOUT"))):
        command(stage, number)
        stage.sql("UPDATE tool_calls SET queued_at = queued_at - 20 WHERE state = 'queued'")
        claimed = stage.claims().take()
        stage.sql(
            "UPDATE tool_calls SET started_at = started_at - 2, queued_at = queued_at - 2 WHERE state = 'running_tool'"
        )
        stage.writer.run(lambda unit, it=claimed, said=result: end(unit, stage, it, said))
    queue, (ok, failed) = of(stage, Series.QUEUE), sorted(of(stage, Series.RUN), key=lambda tally: tally.label)
    assert sum(tally.calls for tally in queue) == 2
    assert all(tally.upto_ms in (30_000, 60_000, 300_000) for tally in queue)
    assert [(tally.label, tally.calls) for tally in (ok, failed)] == [("OK", 1), ("TIMEOUT", 1)]
    assert ok.upto_ms in CALL_BOUNDS_MS[7:]
    assert 2 <= ok.seconds < 300


def test_an_error_without_a_code_is_one_of_the_tool(stage):
    command(stage, 1)
    run(stage, ToolResult(text="exit code 1", is_error=True))
    assert [tally.label for tally in of(stage, Series.RUN)] == ["FAILED"]


def test_an_end_that_is_not_written_is_not_counted(stage):
    command(stage, 1)
    claimed = run(stage)
    with pytest.raises(IllegalTransition):
        stage.writer.run(lambda unit: end(unit, stage, claimed))
    assert sum(tally.calls for tally in of(stage, Series.RUN)) == 1


def test_what_never_ran_is_in_no_histogram(stage):
    queued = command(stage, 1)
    stage.pipeline.cancel(stage.principal.tenant_id, stage.session.id, queued.identity.tool_call_id, "enough")
    assert counted(stage) == []


def answer(stage, verdict):
    (asked,) = stage.pending()
    stage.pipeline.vote(
        stage.principal.tenant_id, asked.id, verdict, digest=asked.digest, by=stage.principal.id, comment=None
    )


def test_questions_are_counted_by_their_answer_and_how_long_it_took(stage):
    def ask(name):
        stage.pipeline.submit("workspace.write", {"path": name, "content": "b"}, stage.subject)
        stage.sql("UPDATE approvals SET created_at = created_at - 40 WHERE state = 'pending'")

    ask("a")
    answer(stage, Verdict.APPROVE)
    ask("b")
    answer(stage, Verdict.REJECT)
    ask("c")
    stage.sql("UPDATE approvals SET created_at = created_at - 600, expires_at = created_at WHERE state = 'pending'")
    assert stage.expire_overdue() == 1
    found = {tally.label: tally for tally in of(stage, Series.ANSWER)}
    assert {label: tally.calls for label, tally in found.items()} == {"approved": 1, "rejected": 1, "expired": 1}
    assert found["approved"].upto_ms in (60_000, 120_000, 300_000)
    assert 40 <= found["approved"].seconds < 300


def test_processes_that_count_the_same_at_once_lose_none(stage, writers):
    host = stage.host.id

    def count(unit):
        statistics.record_end(unit, host, DONE, CallDurations(0.001, 7200.0))

    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(writer.run, count) for writer in writers for _ in range(10)]
    assert [each.result(30) for each in done] == [None] * 40
    assert of(stage, Series.QUEUE) == [HistogramBucket(host, "queue", "", 10, 40, pytest.approx(0.04))]
    assert of(stage, Series.RUN) == [HistogramBucket(host, "run", "OK", UNBOUNDED, 40, pytest.approx(288_000.0))]


def histogram(rows, name, **labels):
    """Its samples by `le`, its count and its sum."""
    (family,) = [each for each in call_statistics_metrics(rows, {HostId("h1"): "one"}) if each.name == name]
    found = [sample for sample in family.samples if labels.items() <= sample.labels.items()]
    buckets = {sample.labels["le"]: sample.value for sample in found if sample.name.endswith("_bucket")}
    count, sum_ = (next(s.value for s in found if s.name == f"{name}_{end}") for end in ("count", "sum"))
    return buckets, count, sum_


def test_buckets_of_the_page_are_cumulative_and_end_with_all():
    rows = [
        HistogramBucket("h1", "run", "OK", 10, 3, 0.02),
        HistogramBucket("h1", "run", "OK", 70, 2, 0.13),  # a bound that another version had
        HistogramBucket("h1", "run", "OK", UNBOUNDED, 1, 9000.0),
        HistogramBucket("h1", "run", "FAILED", 10, 1, 0.001),
        HistogramBucket("h9", "run", "OK", 10, 5, 0.05),  # a host that is not listed
    ]
    buckets, count, sum_ = histogram(rows, "codesdk_call_run_duration_seconds", host="one", outcome="ok")
    assert list(buckets)[-1] == "+Inf"
    assert [buckets[le] for le in ("0.01", "0.05", "0.1", "3600.0", "+Inf")] == [3, 3, 5, 5, 6]
    assert (count, sum_) == (6, pytest.approx(9000.15))
    (completed,) = [e for e in call_statistics_metrics(rows, {}) if e.name == "codesdk_calls_completed"]
    by_code = {sample.labels["code"]: sample.value for sample in completed.samples}
    assert (by_code["OK"], by_code["FAILED"], by_code["WORKER_LOST"]) == (11, 1, 0)


def test_bounds_rise():
    for bounds in (CALL_BOUNDS_MS, ANSWER_BOUNDS_MS):
        assert list(bounds) == sorted(set(bounds))
        assert UNBOUNDED not in bounds
