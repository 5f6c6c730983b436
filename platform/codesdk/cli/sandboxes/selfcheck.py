"""`codesdk sandbox selfcheck`: runs the probes of `sandbox.selfcheck` on this machine's engine."""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

import typer
from rich.table import Table
from rich.text import Text

from codesdk.cli.console.terminal import Printer
from codesdk.errors import ExitCode
from codesdk.provision.engines import docker_engine
from codesdk.provision.images import sandbox_images
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.selfcheck import PROBES, Outcome, Plan, ProbeContext, Status
from codesdk.sandbox.selfcheck import run as run_probes
from codesdk.settings import Settings

STATUS_STYLE = {Status.PASS: ("✓", "green"), Status.FAIL: ("✗", "bold red"), Status.EXEMPT: ("·", "yellow")}
FIRST_UID, UIDS = 100_000, 99_000
"""Below the uids of sessions (200,000 and up), so that no per-uid limit is shared with a live sandbox."""


def run(*, runtime: str, only: str, as_json: bool) -> int:
    """Run the probes and print each result; returns 1 if any failed.

    Raises:
        typer.BadParameter: there is no probe of that name.
        Fault: no sandbox can be started: no engine, image or runtime.
    """
    chosen = tuple(probe for probe in PROBES if fnmatchcase(probe.name, only))
    if not chosen:
        raise typer.BadParameter(f"no probe is named {only}", param_hint="--only")
    printer = Printer(as_json=as_json)
    seen: list[Outcome] = []
    with _selfcheck_sandboxes(runtime, printer) as bench, printer.err.status("") as status:
        for number, outcome in enumerate(run_probes(bench, chosen), 1):
            seen.append(outcome)
            if as_json:
                printer.emit(outcome.model_dump(mode="json"))
            status.update(f"{number} of {len(chosen)}: {outcome.name}")
    if not as_json:
        printer.out.print(table(seen))
        printer.out.print(_summary(seen, runtime))
    return ExitCode.FAILED if any(outcome.status is Status.FAIL for outcome in seen) else ExitCode.OK


@contextmanager
def _selfcheck_sandboxes(runtime: str, printer: Printer) -> Iterator[ProbeContext]:
    """Yield sandboxes under a temporary instance id; all are removed at the end."""
    settings = Settings()
    engine = docker_engine.ensure(printer.progress, docker_host=settings.docker_host)
    try:
        image = sandbox_images.ensure_image_built(engine, printer.progress, images=settings.images_dir)
        instance = f"selfcheck-{secrets.token_hex(8)}"
        sandboxes = DockerSandboxes(instance, Engine(engine.host))
        try:
            yield ProbeContext(
                sandboxes,
                Plan(instance, image, runtime=runtime),
                uids=itertools.count(FIRST_UID + secrets.randbelow(UIDS)),
                ids=lambda: secrets.token_hex(12),
            )
        finally:
            sandboxes.sweep(())
            sandboxes.close()
    finally:
        engine.stop()


def table(outcomes: list[Outcome]) -> Table:
    """Return a table with one row per probe."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    shown.add_column("")
    shown.add_column("probe", no_wrap=True)
    shown.add_column("seen", overflow="fold")
    for outcome in outcomes:
        mark, style = STATUS_STYLE[outcome.status]
        shown.add_row(
            Text(mark, style=style),
            outcome.name,
            Text(outcome.reason, style="" if outcome.status is Status.PASS else style),
        )
    return shown


def _summary(outcomes: list[Outcome], runtime: str) -> Text:
    counts = Counter(outcome.status for outcome in outcomes)
    failed = counts[Status.FAIL]
    text = f"{runtime}: {counts[Status.PASS]} passed, {failed} failed, {counts[Status.EXEMPT]} not applicable to this runtime"
    return Text(text, style="bold red" if failed else "bold green")
