"""The demo from start to stop: make the stack, drive an agent through it, check the record, stop everything."""

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

from codesdk.cli.crash import log_shelf
from codesdk.cli.daemon import Opened
from codesdk.cli.demo.account import Account
from codesdk.cli.demo.agent import Agent, connected, reason_in
from codesdk.cli.demo.project import SQLPARSE, fetch_project
from codesdk.cli.demo.proof import Proof
from codesdk.cli.demo.script import Step, left_out, source_of, steps
from codesdk.cli.demo.witness import Witness
from codesdk.cli.history import History
from codesdk.cli.places import settings_of
from codesdk.cli.sandbox_choice import with_sandbox
from codesdk.cli.sandbox_kind import SandboxKind
from codesdk.cli.stack.signals import Signals
from codesdk.cli.stack.stack import Stack
from codesdk.cli.tables import calls_table
from codesdk.cli.voice import Voice
from codesdk.cli.workspace import without_top_folder
from codesdk.domain.events import EventType
from codesdk.sandbox.surroundings import DOCKER
from codesdk.sessions import NewSession
from codesdk.settings import Settings

SANDBOX_S = 60.0
"""Seconds for the session's container to start or to be removed."""


def run(*, data_dir: Path | None, policies: Path | None, sandbox: SandboxKind | None, as_json: bool) -> None:
    """Run the demo.

    Raises:
        DemoFailed: a step did not end as it should; everything that was started is stopped.
        Fault: what kept it from starting.
    """
    voice = Voice(as_json=as_json)
    account = Account(voice.err if as_json else voice.out)
    signals = Signals()
    began = time.monotonic()
    with _place(data_dir, voice) as place:
        # Port 0: a demo must not care what else runs on the machine.
        settings = with_sandbox(settings_of(place, policies or _demo_policies(), 0), sandbox, voice.warn)
        try:
            history = _show(settings, voice, account)
        finally:
            signals.only_noted()
    seconds = time.monotonic() - began
    account.line(f"Everything that was started is stopped; images and caches stay. {seconds:.1f} s in all.")
    if as_json:
        calls = [call.model_dump(mode="json") for call in history.calls]
        voice.give({"ok": True, "seconds": round(seconds, 3), "events": history.last_seq, "calls": calls})


def _show(settings: Settings, voice: Voice, account: Account) -> History:
    account.title("CodeSDK: one agent's calls, decided, sandboxed, recorded")
    archive = fetch_project(Path(platformdirs.user_cache_dir("codesdk")) / "demo")
    with Stack(settings, voice.say) as stack:
        seed = stack.daemon.upload(without_top_folder(archive.read_bytes()), f"{SQLPARSE.root}.tar.gz")
        wish = NewSession(labels={"opened-by": "codesdk demo"}, seed_artifact=seed.id, runtime="mcp-demo")
        opened = stack.daemon.open_session(wish)
        with closing(Witness(stack.daemon, opened.session.id)) as witness:
            facts = _tell_sandbox(account, opened, witness)
            chosen = steps(SQLPARSE, source_of(archive, SQLPARSE))
            try:
                asyncio.run(_drive(stack, opened, witness, account, chosen=chosen, missing=left_out(facts)))
            except BaseExceptionGroup as group:
                raise reason_in(group) from group
            stack.daemon.close_session(opened.session.id)
            witness.wait_for(lambda event: event.type is EventType.SANDBOX_STOPPED, SANDBOX_S)
            history = _prove(stack, opened, witness, account)
        account.title("Stop")
    return history


def _tell_sandbox(account: Account, opened: Opened, witness: Witness) -> dict[str, Any]:
    kinds = (EventType.SANDBOX_STARTED, EventType.SANDBOX_FAILED)
    began = time.monotonic()
    started = witness.wait_for(lambda event: event.type in kinds, SANDBOX_S)
    facts = started.payload.get("attestation", {})
    account.line(
        f"session {opened.session.id} on the source of {SQLPARSE.name} {SQLPARSE.version}, MCP at {opened.mcp_url}"
    )
    network = "loopback only" if facts.get("network_interfaces") == ["lo"] else facts.get("network_interfaces")
    memory = int(facts.get("memory_bytes", 0)) // 2**20
    account.line(
        f"sandbox ready in {time.monotonic() - began:.1f} s; read back from engine and kernel: network {network}; tool "
        f"uid {facts.get('tool_uid')}; read-only root {facts.get('read_only_root')}; memory "
        f"{f'{memory} MiB' if memory else 'not capped'}; pids {facts.get('pids_limit') or 'not capped'}"
    )
    if facts.get("environment", DOCKER) != DOCKER:
        account.line(f"no container: {facts['environment']}, by {facts.get('runtime')}; NOT enforced here:")
        for missing in facts.get("not_enforced", ()):
            account.line(f"  - {missing}")
    return dict(facts)


async def _drive(
    stack: Stack,
    opened: Opened,
    witness: Witness,
    account: Account,
    *,
    chosen: tuple[Step, ...],
    missing: dict[str, str],
) -> None:
    async with connected(f"{stack.daemon.url}/mcp", opened.token) as client:
        agent = Agent(client, stack.daemon, witness, stack.fallen)
        account.title("An agent works")
        account.line(f"It sees {', '.join(await agent.tools())}")
        for number, step in enumerate(chosen, 1):
            if step.title in missing:
                account.left_out(number, step, missing[step.title])
                continue
            with account.working(number, step):
                call, text = await agent.take(step)
            account.step(number, step, call, text)


def _prove(stack: Stack, opened: Opened, witness: Witness, account: Account) -> History:
    account.title("The record")
    proof = Proof(stack.settings, stack.daemon, opened.session.id, witness.events)
    count = proof.check_numbers()
    account.good(f"the database holds {count} events, numbered 1 to {count} without a gap")
    proof.check_same()
    account.good(f"the same {count} were delivered as a stream (SSE) while they happened, and as HTTP pages")
    history = proof.check_replay()
    account.good("another process folds the stored log into the same history:")
    account.table(calls_table(history))
    return history


@contextmanager
def _place(data_dir: Path | None, voice: Voice) -> Iterator[Path]:
    """The data directory: the one asked for, or one of its own, of which only the logs of a failure stay."""
    if data_dir is not None:
        yield data_dir
        return
    place = Path(tempfile.mkdtemp(prefix="codesdk-demo-"))
    try:
        yield place
    except Exception:
        if (place / "log").is_dir():
            kept = log_shelf() / place.name
            shutil.copytree(place / "log", kept)
            voice.warn(f"The demo failed; the logs of its processes are in {kept}")
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _demo_policies() -> Path:
    default: Path = Settings.model_fields["policies_dir"].get_default(call_default_factory=True)
    return default.parent / "demo"
