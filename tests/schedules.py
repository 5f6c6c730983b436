"""Schedules: an API, workers, people and faults, whose steps follow each other in a seeded order.

All decisions are the product's own: pipeline, claims, execution, recovery, dispatcher, sandboxes, and the stores on a
database in memory. Work that runs on threads in production runs here as *tasks*, of which exactly one runs at any time.
A task yields before and after each transaction and at each step of a sandbox, and the seed chooses the next one. So a
schedule is the same whenever it runs, and a failed one can be repeated.

A *process* (the API, or a worker) can be killed, which ends its tasks at once; frozen, so that they stop while others
continue; and resumed. The database can refuse a commit, or commit and lose the answer. Wake-ups can be lost, late or
doubled.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import text

from codesdk.approvals import Verdict
from codesdk.domain.calls import DenialCode
from codesdk.domain.ids import HostId
from codesdk.domain.invariants import first_violation
from codesdk.errors import Fault
from codesdk.registry import Registry
from codesdk.storage.database import Database, to_fault
from codesdk.storage.writer import Writer
from codesdk.toolcalls.records.call_record import Denied
from codesdk.toolcalls.retries.lost_calls import MAX_ATTEMPTS
from stage import Stage, read_whole
from stepped import SteppedSandboxes, SteppedWriter, broken
from stepped_worker import Worker
from tasks import Process, Steps

STEPS = 120
"""Steps of a schedule before all faults end."""
SHOWN = 400
"""Steps of a failing schedule that are shown: what does not end in the quiet at its end says the same for ever."""
QUIET_STEPS = 6000
"""Steps in which everything must have ended after that."""


FATES = ((0.03, "answer lost"), (0.05, "refused"), (0.06, "killed before it"), (0.07, "killed after it"))
"""What becomes of a commit, where a number from 0 to 1 is below; the API is not killed."""
ENDS = {"ok", "DENIED_BY_POLICY", "REJECTED_BY_APPROVER", "CANCELLED", "SESSION_CLOSED"}
ENDS |= {"SANDBOX_GONE", "SANDBOX_ENDED", "WORKER_LOST", "NOT_BEGUN"}
"""How calls may end here. A call that only met a worker which is not its host's any more is not among them."""


READS = "workspace.list"
"""The tool of which a lost call has another attempt."""


class World(Steps):
    """One schedule, from its seed."""

    def __init__(self, seed: int, root: Path, url: str, registry: Registry) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        super().__init__()
        self.steps: list[str] = []
        self.ran: Counter[tuple[str, int]] = Counter()
        self.wrote: Counter[str] = Counter()
        self.mail: list[str] = []
        self.calls: dict[str, str] = {}
        """What clients were told is on its way, and the tool."""
        self.quiet = True
        self.outage = 0
        self.engine_back = 0
        """The step from which the engine answers again."""
        self.processes: list[Process] = []
        self.workers: list[Worker] = []
        self.api = Process(self, "api")
        self.processes.append(self.api)
        self._numbers = iter(range(10**9))
        self.in_one_task(self.api, lambda: self._arrange(root, url, registry))

    def _arrange(self, root: Path, url: str, registry: Registry) -> None:
        def writer(database: Database) -> Writer:
            self.api.writer = SteppedWriter(database, self.api, self)
            return self.api.writer

        self.stage = Stage(root, url, registry=registry, writer=writer)
        self.clock = self.stage.clock
        self.stage.wakeups.wake = self._wake  # type: ignore[method-assign]
        self.sandboxes = SteppedSandboxes(self)
        read, self.stage.database.read = self.stage.database.read, self._reads  # type: ignore[method-assign]
        self._read = read
        self.subjects = [self.stage.subject, self.stage.open_session()]

    def pipeline_of(self, process: Process) -> Any:
        stage = self.stage
        before, stage.writer = stage.writer, process.writer
        try:
            return stage.pipeline_with(stage.bundle)
        finally:
            stage.writer = before

    # -- faults --------------------------------------------------------------------------------------------------------

    def fate(self, process: Process) -> str:
        """What becomes of a commit."""
        if self.quiet:
            return "fine"
        drawn = self.chance.random()
        if self.outage:
            self.outage -= 1
            fate = "refused" if drawn < 0.5 else "answer lost"
        else:
            at_risk = FATES if process is not self.api else FATES[:2]
            fate = next((fate for below, fate in at_risk if drawn < below), "fine")
        if fate != "fine":
            self.say(f"a commit of {process.name}: {fate}")
        return fate

    @contextmanager
    def _reads(self) -> Iterator[Any]:
        task = self.task
        if task is not None and not self.quiet and (self.outage or self.chance.random() < 0.01):
            self.say(f"a read of {task.process.name} is refused")
            raise to_fault(broken("the database is away"))
        with self._read() as connection:
            yield connection

    def newest_generation(self) -> int:
        """Of the workers that have registered."""
        with self._read() as connection:
            return int(connection.execute(text("SELECT generation FROM hosts")).scalar_one())

    def made_by(self, what: str) -> None:
        """Whoever is at work asks the engine for that: it must be the host's own worker."""
        worker = self.task.process if self.task is not None else None
        assert isinstance(worker, Worker), "only workers do"
        assert worker.generation == self.newest_generation(), f"{worker.name} is replaced, and {what}"

    def say(self, step: str) -> None:
        if len(self.steps) < SHOWN:
            self.steps.append(step)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """All of it; raises what is not as it must be."""
        self.quiet = False
        self._new_worker()
        for number in range(STEPS):
            if number == self.engine_back and self.sandboxes.inner.engine_down:
                self._mend_engine()
            self._step(number)
            self.raise_defects()
        self._settle()

    def _step(self, number: int) -> None:
        able = [task for task in self.tasks if task.process.goes]
        if able and self.chance.random() < 0.72:
            task = self.chance.choice(able)
            self.say(f"{task.process.name} {task.name} goes on at {task.at}")
            self.go_on(task)
            return
        steps: list[tuple[int, Callable[[], None]]] = [
            (24, self._submit),
            (10, self._deliver),
            (10, self._poll),
            (6, self._vote),
            (5, self._cancel),
            (2, self._kill),
            (2, self._freeze),
            (3, self._thaw),
            (1, self._end_worker),
            (1, self._fail_database),
            (1, self._close_session),
            (2, self._crash_sandbox),
            (1, self._reboot_sandbox),
            (1, lambda: self._fail_engine(number)),
        ]
        self.chance.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()

    def _ask(self, what: str, work: Callable[[], object]) -> None:
        """A request to the API. A database that is away answers it with a fault, as it would a client."""
        self.say(f"a client: {what}")

        def request() -> None:
            try:
                work()
            except Fault as fault:
                self.say(f"{what}: {fault.code}")

        self.spawn(self.api, what, request)

    def _submit(self) -> None:
        number = next(self._numbers)
        subject = self.chance.choice(self.subjects)
        kind = self.chance.choice(("exec", "exec", "exec", "read", "write", "patch"))
        name, given = {
            "exec": ("workspace.exec", {"command": f"line{number}"}),
            "read": ("workspace.list", {"path": ".", "depth": 1 + number % 5}),
            "write": ("workspace.write", {"path": f"file{number}", "content": "x"}),
            "patch": ("patch.apply", {"patch": f"--- {number}"}),
        }[kind]

        def submit() -> None:
            outcome = self.stage.pipeline.submit(name, given, subject)
            if not (isinstance(outcome, Denied) and outcome.code is DenialCode.SESSION_CLOSED):
                self.calls[outcome.identity.tool_call_id] = name

        self._ask(f"submit {kind} {number}", submit)

    def _vote(self) -> None:
        pending = self._pending()
        if pending:
            asked = self.chance.choice(pending)
            verdict = self.chance.choice((Verdict.APPROVE, Verdict.APPROVE, Verdict.REJECT))
            self._ask(f"{verdict} {asked.id}", lambda: self._answer(asked, verdict))

    def _pending(self) -> list[Any]:
        return sorted(self.stage.pending(), key=lambda asked: asked.id)

    def _answer(self, asked: Any, verdict: Verdict) -> None:
        by, tenant = self.stage.principal.id, asked.tenant_id
        self.stage.pipeline.vote(tenant, asked.id, verdict, digest=asked.digest, by=by, comment=None)

    def _cancel(self) -> None:
        if self.calls:
            call = self.chance.choice(sorted(self.calls))
            self._ask(f"cancel {call}", lambda: self.stage.cancel(call, "enough"))

    def _close_session(self) -> None:
        if self.chance.random() < 0.3:
            session = self.subjects[-1].session_id
            self._ask("close a session", lambda: self.stage.sessions.close(self.stage.principal.tenant_id, session))

    def _wake(self, _host: HostId, subject: str) -> None:
        if self.quiet or self.chance.random() < 0.8:
            self.mail.append(subject)

    def _deliver(self) -> None:
        if self.mail:
            subject = self.chance.choice(self.mail)
            if self.chance.random() < 0.8:
                self.mail.remove(subject)
            for worker in self._going():
                self.say(f"wake {worker.name} for {subject}")
                if worker.dispatcher is not None:
                    worker.dispatcher.wake(subject)

    def _going(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.goes]

    def _poll(self) -> None:
        self._replace()
        for worker in self._going():
            self.say(f"{worker.name} polls")
            self.spawn(worker, "poll", worker.poll)

    def _new_worker(self) -> None:
        name = f"worker{len(self.workers) + 1}"
        self.say(f"{name} starts")
        worker = Worker(self, name)
        self.workers.append(worker)
        self.processes.append(worker)

        def start() -> None:
            try:
                worker.start()
            except Fault as fault:  # it would end, and be started again
                self.say(f"{name} did not start: {fault.code}")
                worker.dead = True

        self.spawn(worker, "start", start)

    def _replace(self) -> None:
        if not any(worker.goes for worker in self.workers):
            self._new_worker()

    def _kill(self) -> None:
        for worker in self._going():
            self.say(f"{worker.name} is killed")
            self.kill(worker)
        self.clear()
        self._replace()

    def _freeze(self) -> None:
        for worker in self._going():
            self.say(f"{worker.name} is frozen")
            worker.frozen = True
        self._replace()

    def _thaw(self) -> None:
        for worker in self.workers:
            if worker.frozen and not worker.dead:
                self.say(f"{worker.name} is thawed")
                worker.frozen = False

    def _end_worker(self) -> None:
        for worker in self._going():
            self.say(f"{worker.name} is told to end")
            self.spawn(worker, "leave", worker.leave)
        self._new_worker()

    def _fail_database(self) -> None:
        self.say("the database goes away")
        self.outage = self.chance.randint(1, 6)

    def _crash_sandbox(self) -> None:
        if self.sandboxes.inner.living and self.chance.random() < 0.4:
            owner = self.chance.choice(self.sandboxes.inner.living)
            keeps = self.chance.random() < 0.7
            self.say(f"sandbox {owner} ends; its workspace is {'kept' if keeps else 'lost'}")
            self.sandboxes.inner.crash(owner, keeps=keeps)

    def _reboot_sandbox(self) -> None:
        alive = sorted(owner for owner, state in self.sandboxes.inner._states.items() if not state.gone)
        if alive and self.chance.random() < 0.4:
            owner = self.chance.choice(alive)
            self.say(f"the container of sandbox {owner} is restarted")
            self.sandboxes.inner.reboot(owner)

    def _fail_engine(self, number: int) -> None:
        """For fewer steps than a call waits; what it carries lives on, unless it ends meanwhile."""
        if not self.sandboxes.inner.engine_down:
            self.say("the engine goes away")
            self.sandboxes.inner.engine_down = True
            self.engine_back = number + self.chance.randint(5, 25)

    def _mend_engine(self) -> None:
        self.say("the engine is back")
        self.sandboxes.inner.engine_down = False

    # -- the end -------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """No more faults: who was frozen comes back, people answer, and one worker is there; then all must be over."""
        self.say("all faults end")
        self.quiet, self.outage = True, 0
        self._mend_engine()
        self._thaw()
        self._replace()  # only where none is left: one that lives has to end by itself what it began
        for _ in range(QUIET_STEPS):
            able = [task for task in self.tasks if task.process.goes]
            if able:
                self.go_on(self.chance.choice(able))
            elif self._open():
                for asked in self._pending():
                    self._ask(f"reject {asked.id}", lambda asked=asked: self._answer(asked, Verdict.REJECT))
                self._poll()
                self._replace()
            else:
                break
            self.raise_defects()
        else:
            raise AssertionError(f"not over after {QUIET_STEPS} quiet steps: {self._open()}")

    def _open(self) -> list[tuple[str, str]]:
        with self.stage.database.read() as connection:
            query = "SELECT id, state FROM tool_calls WHERE state NOT IN ('completed', 'denied') ORDER BY id"
            return [tuple(row) for row in connection.execute(text(query))]

    def verify(self) -> Counter[str]:
        """What must hold of what happened; returns how calls ended."""
        ends: Counter[str] = Counter()
        seen: set[str] = set()
        numbers: dict[str, list[int]] = {}
        for subject in self.subjects:
            events = read_whole(self.stage.log, subject.session_id)
            assert first_violation(events) is None
            histories: dict[tuple[str, int], list[Any]] = {}
            for event in events:
                if (call := event.payload.get("tool_call_id")) and event.type.value.startswith("tool."):
                    histories.setdefault((call, event.payload["attempt"]), []).append(event)
            for key, history in histories.items():
                ends[self._verify_attempt(key, history)] += 1
                seen.add(key[0])
                numbers.setdefault(key[0], []).append(key[1])
        self._verify_attempts(numbers)
        assert not [call for call in self.calls if call not in seen], "a call that was answered for has no history"
        twice = {key: times for key, times in (self.ran | self.wrote).items() if times > 1}
        assert not twice, f"ran more than once: {twice}"
        assert not ends.keys() - ENDS, f"a call ended as none should: {ends.keys() - ENDS}"
        return ends

    def _verify_attempts(self, numbers: dict[str, list[int]]) -> None:
        for call, made in numbers.items():
            assert made == list(range(1, len(made) + 1)), f"{call} has the attempts {made}"
            assert len(made) <= MAX_ATTEMPTS, f"{call} has too many attempts"
            assert len(made) == 1 or self.calls.get(call, READS) == READS, f"{call} may write, and was tried again"

    def _verify_attempt(self, key: tuple[str, int], history: list[Any]) -> str:
        last = history[-1]
        name = last.type.value
        assert name in ("tool.call.completed", "tool.call.denied"), f"{key} did not end: {name}"
        if name == "tool.call.denied":
            assert self.ran[key] == 0, f"{key} was denied, and ran"
            return str(last.payload["code"])
        printed: dict[str, str] = {}
        for event in history:
            if event.type.value == "tool.output.delta":
                # A stretch may come again, from a worker that took the call up or after a lost answer: at its place.
                stream, offset, delta = event.payload["stream"], event.payload["offset"], event.payload["delta"]
                before = printed.get(stream, "")
                assert offset <= len(before), f"{key} leaves output out"
                assert delta.startswith(before[offset : offset + len(delta)]), f"{key} shows other output again"
                printed[stream] = before[:offset] + max(before[offset:], delta, key=len)
        if last.payload["is_error"]:
            code = str(last.payload["code"])
            assert code != "NOT_BEGUN" or self.ran[key] == 0, f"{key} was not begun, and ran"
            return code
        if last.payload["name"] == "workspace.exec":
            assert self.ran[key] == 1, f"{key} has a result, and did not run"
            assert last.payload["result_preview"]["stdout"] == printed["stdout"]
        return "ok"

    def close(self) -> None:
        for process in self.processes:
            process.dead = True
        self.clear()
        for process in self.processes:
            process.writer.close()
        self.stage.database.close()

    def __str__(self) -> str:
        return "\n".join(f"{number:4} {step}" for number, step in enumerate(self.steps))
