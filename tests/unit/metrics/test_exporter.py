"""The metrics page of a stage's rows, in a form that Prometheus' own parser reads."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML
from sqlalchemy import event

from codesdk.domain.calls import DenialCode
from codesdk.hosts import Capacity, HostService, HostState
from codesdk.hosts import store as host_store
from codesdk.metrics import MetricsExporter
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.principal import Reach, Role
from codesdk.toolcalls.statistics.denial_counts import DenialCounts
from codesdk.worker.ownership.registration import HostOffer, register
from databases import ONLY_SQLITE

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy" / "prometheus" / "codesdk.rules.yml"
PAGES = ROOT / "docs"
GROWS = ("approvals", "artifacts", "events", "sandboxes", "sessions", "tool_calls", "webhook_deliveries")
"""Tables of which most rows are over."""
ELSEWHERES = "process_"
"""Series that the library names."""


def watcher(stage):
    return stage.principal.model_copy(update={"reach": Reach.INSTANCE, "roles": (Role.AUDITOR,)})


def page(stage):
    return MetricsExporter(stage.database, DenialCounts(stage.database)).page(watcher(stage)).decode()


def read(stage):
    """The samples of the page by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page(stage))
        for sample in family.samples
    }


def of(samples, name, **labels):
    return samples[name, tuple(sorted(labels.items()))]


def host(stage):
    with stage.database.read() as connection:
        return host_store.list_hosts(connection)[0].name


def ask(stage):
    return stage.pipeline.submit("workspace.write", {"path": "a", "content": "b"}, stage.subject)


def command(stage, number):
    return stage.pipeline.submit("workspace.exec", {"command": f"echo {number}"}, stage.subject)


def test_calls_are_counted_by_state_and_the_oldest_of_each_is_told(stage):
    here = host(stage)
    before = read(stage)
    states = ("waiting", "held", "queued", "running")
    assert [of(before, "codesdk_calls", host=here, state=state) for state in states] == [0, 0, 0, 0]
    assert of(before, "codesdk_oldest_call_age_seconds", host=here, state="queued") == 0
    ask(stage)
    for number in range(3):  # they write to one workspace: the second and third wait for the first
        command(stage, number)
    stage.sql("UPDATE tool_calls SET queued_at = queued_at - :s WHERE held", s=500)
    stage.sql("UPDATE tool_calls SET queued_at = queued_at - :s WHERE NOT held", s=100)
    after = read(stage)
    assert [of(after, "codesdk_calls", host=here, state=state) for state in states] == [1, 2, 1, 0]
    ages = {state: of(after, "codesdk_oldest_call_age_seconds", host=here, state=state) for state in states[1:]}
    assert ages == {"held": pytest.approx(500, abs=60), "queued": pytest.approx(100, abs=60), "running": 0}
    assert stage.claims().take() is not None
    stage.sql("UPDATE tool_calls SET started_at = started_at - :s WHERE state = 'running_tool'", s=200)
    running = read(stage)
    assert of(running, "codesdk_calls", host=here, state="running") == 1
    assert of(running, "codesdk_oldest_call_age_seconds", host=here, state="running") == pytest.approx(200, abs=60)


def test_open_approvals_and_sessions_of_all_tenants_are_counted(stage):
    ask(stage)
    stage.sql("UPDATE approvals SET created_at = created_at - :s", s=300)
    found = read(stage)
    assert of(found, "codesdk_approvals_open") == 1
    assert of(found, "codesdk_oldest_approval_age_seconds") == pytest.approx(300, abs=60)
    assert of(found, "codesdk_sessions_open") == 1
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    after = read(stage)
    assert [of(after, name) for name in ("codesdk_approvals_open", "codesdk_oldest_approval_age_seconds")] == [0, 0]
    assert of(after, "codesdk_sessions_open") == 0


def test_a_host_tells_its_state_its_silence_and_its_room(stage):
    name = 'two "b\\c"\nd'  # what a label's value must escape
    offer = HostOffer(capacity=Capacity(memory_bytes=2**30, millicpus=1500))
    register(stage.writer, stage.ids, name, {}, 1.0, offer=offer)
    stage.sql("UPDATE hosts SET heard_at = heard_at - :s WHERE name LIKE 'two%'", s=90)
    found = read(stage)
    assert of(found, "codesdk_host_up", host=name) == 1
    assert of(found, "codesdk_host_silent_seconds", host=name) == pytest.approx(90, abs=60)
    assert of(found, "codesdk_host_capacity_memory_bytes", host=name) == 2**30
    assert of(found, "codesdk_host_capacity_cpus", host=name) == 1.5
    assert ("codesdk_host_capacity_sessions", (("host", name),)) not in found
    assert of(found, "codesdk_host_sessions", host=host(stage)) == 1
    assert of(found, "codesdk_sandboxes", host=host(stage), state="wanted") == 1
    operator = watcher(stage).model_copy(update={"roles": (Role.OPERATOR,)})
    desk = HostService(stage.database, stage.writer, stage.clock)
    desk.drain(operator, name)
    assert states(read(stage), name) == {"active": 0, "draining": 1, "lost": 0}
    desk.lose(operator, name)
    lost = read(stage)
    assert states(lost, name) == {"active": 0, "draining": 0, "lost": 1}
    assert of(lost, "codesdk_host_up", host=name) == 0


def states(samples, name):
    return {state.value: of(samples, "codesdk_host_state", host=name, state=state.value) for state in HostState}


def test_every_refusal_code_has_a_sample_and_so_have_the_process_and_the_version(stage):
    stage.pipeline.submit("patch.apply", {"patch": "x"}, stage.subject)
    found = read(stage)
    refused = {code: of(found, "codesdk_calls_refused_total", code=code.value) for code in DenialCode}
    assert {code for code, calls in refused.items() if calls} == {DenialCode.POLICY}
    assert [key for key in found if key[0] == "codesdk_build_info"]
    assert of(found, "process_resident_memory_bytes") > 2**20
    assert of(found, "codesdk_audit_entries_total") >= 0
    assert all(math.isfinite(value) for value in found.values())


@ONLY_SQLITE
def test_figures_of_all_tenants_are_not_for_who_is_one_tenants(stage):
    with pytest.raises(Forbidden):
        MetricsExporter(stage.database, DenialCounts(stage.database)).page(
            stage.principal.model_copy(update={"roles": (Role.AUDITOR,)})
        )


def ours(stage):
    register(
        stage.writer,
        stage.ids,
        "limited",
        {},
        1.0,
        offer=HostOffer(capacity=Capacity(memory_bytes=1, millicpus=1, sessions=1)),
    )
    return {name for name in re.findall(r"^# TYPE (\S+)", page(stage), re.MULTILINE) if not name.startswith(ELSEWHERES)}


@ONLY_SQLITE
def test_the_reference_has_every_series_and_no_other(stage):
    text = (PAGES / "reference" / "metrics.md").read_text()
    cells = re.findall(r"^\| (`codesdk_[^|]+) \|", text, re.MULTILINE)
    named = {span.partition("{")[0] for cell in cells for span in re.findall(r"`([^`]+)`", cell)}
    assert named == ours(stage)


@ONLY_SQLITE
def test_every_alert_asks_for_series_that_are_there_and_is_explained(stage):
    found = YAML(typ="safe").load(RULES.read_text())
    rules = [rule for group in found["groups"] for rule in group["rules"]]
    asked = {name for rule in rules for name in re.findall(r"codesdk_\w+", rule["expr"])}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in asked} <= ours(stage)
    guide = (PAGES / "how-to" / "watch-an-installation.md").read_text()
    assert re.findall(r"^### (\w+)$", guide, re.MULTILINE) == [rule["alert"] for rule in rules]


@ONLY_SQLITE  # PostgreSQL's plans follow from its statistics
def test_no_figure_is_counted_by_a_scan_of_what_has_ended(stage):
    asked = []
    event.listen(stage.database.reader, "before_cursor_execute", lambda *given: asked.append(given[2:4]))
    read(stage)
    with stage.database.read() as connection:
        plans = [
            row.detail
            for statement, values in list(asked)
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
        ]
    assert len(plans) > len(GROWS)
    scans = [line for line in plans if re.match(rf"SCAN ({'|'.join(GROWS)})\b", line)]
    assert [line for line in scans if "uq_sandboxes_host_uid" not in line] == []  # an index of what is not gone
