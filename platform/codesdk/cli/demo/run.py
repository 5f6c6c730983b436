"""Runs the demo: starts the stack, drives the agent, verifies the record, stops everything."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from codesdk.cli.api_client import OpenedSession
from codesdk.cli.commands.options import SandboxKind
from codesdk.cli.console.files import crash_log_directory
from codesdk.cli.console.terminal import Printer
from codesdk.cli.demo.agent import Agent, connect_mcp, root_cause
from codesdk.cli.demo.event_collector import EventCollector
from codesdk.cli.demo.project import SQLPARSE, fetch_project
from codesdk.cli.demo.record_check import RecordCheck
from codesdk.cli.demo.report import DemoReport
from codesdk.cli.demo.steps import Step, read_source, steps, unavailable_steps
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.logs.history import History
from codesdk.cli.logs.history_table import calls_table
from codesdk.cli.sandboxes.backend_choice import apply_sandbox_choice
from codesdk.cli.stack.signals import Signals
from codesdk.cli.stack.stack import Stack
from codesdk.client.workspace_archive import without_top_folder
from codesdk.domain.events import EventType
from codesdk.sandbox.port import DOCKER
from codesdk.sessions import NewSession
from codesdk.settings import Settings

SANDBOX_S = 60.0
"""Seconds for the session's container to start or to be removed."""


def run(*, data_dir: Path | None, policies: Path | None, sandbox: SandboxKind | None, as_json: bool) -> None:
    """Run the demo.

    Raises:
        DemoFailed: a step did not end as expected; everything that was started is stopped.
        Fault: the stack could not start.
    """
    printer = Printer(as_json=as_json)
    report = DemoReport(printer.err if as_json else printer.out)
    signals = Signals()
    began = time.monotonic()
    with _demo_data_dir(data_dir, printer) as place:
        # Port 0: the demo must work regardless of what else runs on the machine.
        settings = apply_sandbox_choice(load_settings(place, policies or _demo_policies(), 0), sandbox, printer.warn)
        try:
            history = _run_demo(settings, printer, report)
        finally:
            signals.ignore_from_now()
    seconds = time.monotonic() - began
    report.line(f"Everything that was started is stopped; images and caches stay. {seconds:.1f} s in all.")
    if as_json:
        calls = [call.model_dump(mode="json") for call in history.calls]
        printer.emit({"ok": True, "seconds": round(seconds, 3), "events": history.last_seq, "calls": calls})


def _run_demo(settings: Settings, printer: Printer, report: DemoReport) -> History:
    report.title("CodeSDK: one agent's calls, decided, sandboxed, recorded")
    archive = fetch_project(Path(platformdirs.user_cache_dir("codesdk")) / "demo")
    with Stack(settings, printer.progress) as stack:
        seed = stack.daemon.upload(without_top_folder(archive.read_bytes()), f"{SQLPARSE.root}.tar.gz")
        wish = NewSession(labels={"opened-by": "codesdk demo"}, seed_artifact=seed.id, runtime="mcp-demo")
        opened = stack.daemon.open_session(wish)
        with closing(EventCollector(stack.daemon, opened.session.id)) as event_collector:
            facts = _report_sandbox(report, opened, event_collector)
            chosen = steps(SQLPARSE, read_source(archive, SQLPARSE))
            try:
                asyncio.run(
                    _run_steps(stack, opened, event_collector, report, chosen=chosen, missing=unavailable_steps(facts))
                )
            except BaseExceptionGroup as group:
                raise root_cause(group) from group
            stack.daemon.close_session(opened.session.id)
            event_collector.wait_for(lambda event: event.type is EventType.SANDBOX_STOPPED, SANDBOX_S)
            history = _check_record(stack, opened, event_collector, report)
        report.title("Stop")
    return history


def _report_sandbox(report: DemoReport, opened: OpenedSession, event_collector: EventCollector) -> dict[str, Any]:
    kinds = (EventType.SANDBOX_STARTED, EventType.SANDBOX_FAILED)
    began = time.monotonic()
    started = event_collector.wait_for(lambda event: event.type in kinds, SANDBOX_S)
    facts = started.payload.get("attestation", {})
    report.line(
        f"session {opened.session.id} on the source of {SQLPARSE.name} {SQLPARSE.version}, MCP at {opened.mcp_url}"
    )
    network = "loopback only" if facts.get("network_interfaces") == ["lo"] else facts.get("network_interfaces")
    memory = int(facts.get("memory_bytes", 0)) // 2**20
    report.line(
        f"sandbox ready in {time.monotonic() - began:.1f} s; read back from engine and kernel: network {network}; tool "
        f"uid {facts.get('tool_uid')}; read-only root {facts.get('read_only_root')}; memory "
        f"{f'{memory} MiB' if memory else 'not capped'}; pids {facts.get('pids_limit') or 'not capped'}"
    )
    if facts.get("environment", DOCKER) != DOCKER:
        report.line(f"no container: {facts['environment']}, by {facts.get('runtime')}; NOT enforced here:")
        for missing in facts.get("not_enforced", ()):
            report.line(f"  - {missing}")
    return dict(facts)


async def _run_steps(
    stack: Stack,
    opened: OpenedSession,
    event_collector: EventCollector,
    report: DemoReport,
    *,
    chosen: tuple[Step, ...],
    missing: dict[str, str],
) -> None:
    async with connect_mcp(f"{stack.daemon.url}/mcp", opened.token) as client:
        agent = Agent(client, stack.daemon, event_collector, stack.failure_reason)
        report.title("An agent works")
        report.line(f"It sees {', '.join(await agent.tools())}")
        for number, step in enumerate(chosen, 1):
            if step.title in missing:
                report.left_out(number, step, missing[step.title])
                continue
            with report.working(number, step):
                call, text = await agent.run_step(step)
            report.step(number, step, call, text)


def _check_record(stack: Stack, opened: OpenedSession, event_collector: EventCollector, report: DemoReport) -> History:
    report.title("The record")
    record_check = RecordCheck(stack.settings, stack.daemon, opened.session.id, event_collector.events)
    count = record_check.check_numbers()
    report.good(f"the database holds {count} events, numbered 1 to {count} without a gap")
    record_check.check_same()
    report.good(f"the same {count} were delivered as a stream (SSE) while they happened, and as HTTP pages")
    history = record_check.check_replay()
    report.good("another process folds the stored log into the same history:")
    report.table(calls_table(history))
    return history


@contextmanager
def _demo_data_dir(data_dir: Path | None, printer: Printer) -> Iterator[Path]:
    """Yield the data directory: the given one, or a temporary one, of which only the logs of a failure are kept."""
    if data_dir is not None:
        yield data_dir
        return
    place = Path(tempfile.mkdtemp(prefix="codesdk-demo-"))
    try:
        yield place
    except Exception:
        if (place / "log").is_dir():
            kept = crash_log_directory() / place.name
            shutil.copytree(place / "log", kept)
            printer.warn(f"The demo failed; the logs of its processes are in {kept}")
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _demo_policies() -> Path:
    default: Path = Settings.model_fields["policies_dir"].get_default(call_default_factory=True)
    return default.parent / "demo"
