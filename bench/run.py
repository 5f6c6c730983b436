"""Measures a governed call and its peers in one run on this machine.

Five things are timed in turn, a few of each per round, so that other load on the machine affects all alike:

- governed_call: `true` through MCP over HTTP: policy, events committed, RQ wake-up, worker, sandbox, result back;
- runner_exec: `true` through the sandbox port alone, in a container of the same kind;
- docker_exec: `true` in that very container through the engine's API (docker SDK: create, start with its output
  streamed to the end, inspect for the exit code): what `docker exec` does, without starting a client program;
- docker_run: a container of the same image for one `true`, removed again (docker SDK `containers.run(remove=True)`);
- host_spawn: `true` as a child of this process.

Then cancelled commands (`cancels.py`); files of 10 MB (`files.py`); 16 calls at once, and the memory of API and worker (`load.py`); the time of each
stage (`stages.py`); claims with a long queue (`claims.py`); a scrape of the metrics (`scrape.py`); the MCP host and the
bare SDK (`mcp_host.py`); decisions (`policy.py`); sandboxes (`lifecycle.py`); gVisor and runc (`beside_gvisor.py`); and
the event log (`log.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
from rich.console import Console
from rich.table import Table

import approvals
import beside_gvisor
import cancels
import claims
import fairness
import files
import lifecycle
import load
import log as event_log
import mcp_host
import policy
import scrape
import stages
from codesdk.cli.demo.agent import connect_mcp
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.logs.history import fold
from codesdk.cli.stack.signals import Signals
from codesdk.cli.stack.stack import Stack
from codesdk.provision.engines.docker_engine import Engine as ProvisionedEngine
from codesdk.provision.images import sandbox_images
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.isolation import spec as specs
from codesdk.sandbox.port import ExecRequest, SandboxSpec
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sessions import NewSession
from codesdk.settings import Settings

PER_ROUND = {"governed_call": 5, "runner_exec": 5, "docker_exec": 3, "docker_run": 1, "host_spawn": 5}
BESIDE = tuple(f"{runtime}_{what}" for what in beside_gvisor.MEASURED for runtime in beside_gvisor.RUNTIMES)
ROUNDS = 30
WARM_UP_ROUNDS = 2
AIM = 0.15
"""Target: a governed call as a share of `docker exec` (p50), at most."""
AIM_AT_ONCE = 10
"""Target: governed calls per second as a multiple of `docker exec`, 16 at once."""
TOOL_UID = 265_000
INSTANCE = "bench"


@dataclass
class Samples:
    """Milliseconds of each measured thing."""

    times: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PER_ROUND})

    def clear(self) -> None:
        """Forget what was measured to warm up."""
        for values in self.times.values():
            values.clear()

    def summary(self) -> dict[str, dict[str, float]]:
        """By the report's keys."""
        return {
            f"{name}_ms": {
                "p50": round(statistics.median(values), 3),
                "p95": round(statistics.quantiles(values, n=20, method="inclusive")[-1], 3),
                "n": len(values),
            }
            for name, values in self.times.items()
        }


class Peers:
    """The peers of a governed call, on their own container."""

    def __init__(self, host: str, opened: ExitStack) -> None:
        engine = Engine(host)
        opened.callback(engine.close)
        self.client = docker.DockerClient(base_url=host, max_pool_size=load.AT_ONCE)
        opened.callback(self.client.close)
        image = sandbox_images.ensure_image_built(ProvisionedEngine(host), lambda _line: None)
        self.image = image
        sandboxes = DockerSandboxes(INSTANCE, engine)
        owner = f"bench-{os.getpid()}"
        opened.callback(sandboxes.sweep, ())
        wanted = SandboxSpec(
            owner=owner, instance=INSTANCE, profile=Profile(), image=image, tool_uid=TOOL_UID, generation=1
        )
        self._sandbox = sandboxes.open(wanted)
        self.container = specs.container_name(INSTANCE, owner)
        self._number = 0

    def runner_exec(self) -> None:
        """Through our sandbox port alone."""
        self._number += 1
        call = f"call-{self._number}"
        result = self._sandbox.exec(ExecRequest(call=call, argv=("true",)), lambda _chunk: None)
        self._sandbox.acknowledge(call, 1)
        assert result.exit_code == 0, result

    def docker_exec(self) -> None:
        """Through the engine's exec, in the same container."""
        api = self.client.api
        made = api.exec_create(self.container, ["true"])
        for _ in api.exec_start(made["Id"], stream=True):
            pass
        assert api.exec_inspect(made["Id"])["ExitCode"] == 0

    def docker_run(self) -> None:
        """In a container of its own."""
        self.client.containers.run(self.image, entrypoint=["true"], command=[], network_mode="none", remove=True)

    def host_spawn(self) -> None:
        """On this machine, unsandboxed."""
        subprocess.run(["true"], check=True)


async def measure(url: str, token: str, peers: Peers, rounds: int, say: Callable[[str], None]) -> Samples:
    samples = Samples()
    async with connect_mcp(url, token) as client:

        async def governed_call() -> None:
            result = await client.call_tool("workspace_exec", {"argv": ["true"]})
            assert not result.is_error, result

        def blocking(work: Callable[[], None]) -> Callable[[], Awaitable[None]]:
            async def run() -> None:
                work()

            return run

        things = {"governed_call": governed_call} | {
            name: blocking(getattr(peers, name)) for name in PER_ROUND if name != "governed_call"
        }
        for number in range(-WARM_UP_ROUNDS, rounds):
            if number == 0:
                samples.clear()
            if number % 10 == 0:
                say(f"round {number} of {rounds}")
            for name, count in PER_ROUND.items():
                for _ in range(count):
                    began = time.perf_counter()
                    await things[name]()
                    samples.times[name].append((time.perf_counter() - began) * 1000)
    return samples


def ratios(summary: dict[str, dict[str, float]]) -> dict[str, float]:
    governed = summary["governed_call_ms"]["p50"]
    return {
        "warm_first_result / docker_run": round(
            summary["warm_first_result_ms"]["p50"] / summary["docker_run_ms"]["p50"], 4
        ),
        "exec at 200 idle / at 1": round(summary["exec_at_200_idle_ms"] / summary["exec_at_1_idle_ms"], 3),
        "governed_call / docker_exec": round(governed / summary["docker_exec_ms"]["p50"], 3),
        "governed_call / docker_run": round(governed / summary["docker_run_ms"]["p50"], 4),
        "governed / docker_exec, a second, 16 at once": round(
            summary["governed_16_per_s"] / summary["docker_exec_16_per_s"], 2
        ),
        "governed / docker_run, a second, 16 at once": round(
            summary["governed_16_per_s"] / summary["docker_run_16_per_s"], 1
        ),
        "cancel / docker_kill": round(summary["cancel_ms"]["p50"] / summary["docker_kill_ms"]["p50"], 2),
        "cancel / docker_exec_kill": round(summary["cancel_ms"]["p50"] / summary["docker_exec_kill_ms"]["p50"], 2),
        "governed_call / runner_exec": round(governed / summary["runner_exec_ms"]["p50"], 2),
        "runner_exec / docker_exec": round(summary["runner_exec_ms"]["p50"] / summary["docker_exec_ms"]["p50"], 3),
        "runner_exec / host_spawn": round(summary["runner_exec_ms"]["p50"] / summary["host_spawn_ms"]["p50"], 2),
        **{
            f"runsc / runc, {what.replace('_', ' ')}": round(
                summary[f"runsc_{what}_ms"]["p50"] / summary[f"runc_{what}_ms"]["p50"], 2
            )
            for what in beside_gvisor.MEASURED
            if f"runsc_{what}_ms" in summary
        },
    }


def show(console: Console, report: dict[str, Any]) -> None:
    for title, names in (
        ("`true`, in milliseconds", (*PER_ROUND, "warm_first_result", *BESIDE)),
        ("until a command is ended, in milliseconds", cancels.NAMES),
    ):
        table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
        table.add_column("")
        for column in ("p50", "p95", "n"):
            table.add_column(column, justify="right")
        for name in names:
            row = report.get(f"{name}_ms")
            if row is None:
                continue  # printed below
            table.add_row(name.replace("_", " "), f"{row['p50']:.2f}", f"{row['p95']:.2f}", str(row["n"]))
        console.print(table)
    if "gvisor_absent" in report:
        console.print(f"gVisor was not measured: {report['gvisor_absent']}", markup=False)
    if policy.opa.ABSENT:
        console.print(f"OPA was not measured: {policy.opa.ABSENT}", markup=False)
    for title, values, unit in (
        ("ratios (p50)", report["ratios"], ""),
        ("a governed call's time (p50)", report["stages_ms"], " ms"),
        ("at once, and held", {name.replace("_", " "): report[name] for name in load.PLAIN}, ""),
        ("approvals", {name.replace("_", " "): report[name] for name in approvals.PLAIN}, " ms"),
        (
            "claims",
            {
                name.replace("_", " "): round(report[name], 3)
                for name in (*claims.PLAIN, *claims.ON_SERVER)
                if name in report
            },
            "",
        ),
        ("metrics", {name.replace("_", " "): report[name] for name in scrape.PLAIN if name in report}, " ms"),
        ("fairness", {name.replace("_", " "): report[name] for name in fairness.PLAIN if name in report}, ""),
        ("the MCP host", {name.replace("_", " "): report[name] for name in mcp_host.PLAIN}, ""),
        ("decisions (µs p50)", {name.replace("_", " "): report[name] for name in policy.PLAIN}, ""),
        ("the event log", {name.replace("_", " "): report[name] for name in event_log.PLAIN}, ""),
        ("sandboxes", {name.replace("_", " "): report[name] for name in lifecycle.PLAIN}, ""),
    ):
        rows = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), show_header=False)
        rows.add_column("")
        rows.add_column("", justify="right")
        for name, value in values.items():
            rows.add_row(name, f"{value}{unit}")
        console.print()
        console.print(rows)
    share = report["ratios"]["governed_call / docker_exec"]
    times = report["ratios"]["governed / docker_exec, a second, 16 at once"]
    took = report["approval_overhead_ms"]
    moved = max(report["ratios"][f"file_10mb_{way} / docker_cp"] for way in ("up", "down"))
    ended = {description: report[f"{name}_ms"]["p95"] for name, description in cancels.AIMED.items()}
    console.print()
    for aim, reached, was in (
        (f"a governed call at no more than {AIM} of docker exec", share <= AIM, f"{share}"),
        (f"{AIM_AT_ONCE} times as many as docker exec, 16 at once", times >= AIM_AT_ONCE, f"{times}"),
        (f"{approvals.AIM_MS:.0f} ms from an approval to the start", took <= approvals.AIM_MS, f"{took} ms"),
        (f"10 MB up and down in no more than {files.AIM:g} times docker cp", moved <= files.AIM, f"{moved}"),
        *(
            (f"{cancels.AIM_MS:.0f} ms {description}", took <= cancels.AIM_MS, f"{took} ms")
            for description, took in ended.items()
        ),
    ):
        console.print(f"Aim: {aim}: [bold]{'reached' if reached else 'not reached'}[/bold] ({was}).")


def run(rounds: int, console: Console) -> dict[str, Any]:
    with ExitStack() as opened:
        place = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="codesdk-bench-")))
        default: Path = Settings.model_fields["policies_dir"].get_default(call_default_factory=True)
        settings = load_settings(place, default.parent / "demo", 0)
        say = lambda line: console.print(f"[dim]· {line}[/dim]", soft_wrap=True)  # noqa: E731
        stack = opened.enter_context(Stack(settings, say))
        peers = Peers(stack.settings.docker_host, opened)
        session = stack.daemon.open_session(NewSession(labels={"opened-by": "bench"}))
        samples = asyncio.run(measure(session.mcp_url, session.token, peers, rounds, say))
        events = list(stack.daemon.events(session.session.id))
        fold(events)  # a run whose record has a gap is worthless
        samples.times |= cancels.measure(stack, peers.client, peers.container, peers.image, say)
        moved = files.measure(stack, peers.client, peers.image, say)
        summary = {**samples.summary(), **load.at_once(stack, peers.docker_exec, peers.docker_run, say)}
        summary |= approvals.measure(stack, say)
        summary |= load.memory(settings.policies_dir, settings.registry_dir, say)
        say("where the time goes")
        of_call = stages.measure(settings.policies_dir, say)
        say("claims with a long queue")
        summary |= claims.measure(say)
        say("a look at the metrics of a full installation")
        summary |= scrape.measure(say)
        summary |= fairness.measure(settings.policies_dir, say)
        summary |= mcp_host.measure(say)
        say("decisions, with Cedar and OPA")
        decisions = policy.measure()
        held = lifecycle.measure(stack.settings.docker_host, peers.image, say)
        beside = beside_gvisor.measure(stack.settings.docker_host, peers.image, say)
        summary = {**summary, **decisions, **held, **beside}
        logged = event_log.measure(say)
        return {
            **summary,
            **{name: value for name, value in {**logged, **moved}.items() if " / " not in name},
            "ratios": {
                **ratios(summary),
                **{name: value for name, value in {**logged, **moved}.items() if " / " in name},
            },
            "stages_ms": of_call,
            "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
            "peer": "docker SDK over the engine's API; no docker client program is started",
            "load_average": os.getloadavg()[0],
        }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, metavar="PATH", help="write the numbers there as well")
    options.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    given = options.parse_args()
    console = Console(highlight=False)
    Signals()
    report = run(given.rounds, console)
    show(console, report)
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
        console.print(f"[dim]Written to {given.json}[/dim]")


if __name__ == "__main__":
    main()
