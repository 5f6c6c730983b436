"""Tasks: work on threads of which exactly one runs at any time, so that the caller chooses the order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class Died(BaseException):
    """The process of this task was killed: nothing that it would do now happens."""


class Process:
    """What lives and dies as one: the API, or one worker."""

    def __init__(self, world: Steps, name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self.frozen = False

    @property
    def goes(self) -> bool:
        return not self.dead and not self.frozen


class Task:
    """Work on a thread of its own that goes on only when it is told to."""

    def __init__(self, process: Process, name: str, work: Callable[[], object]) -> None:
        self.process = process
        self.name = name
        self.at = "its beginning"
        self.atomic = 0
        self.over = False
        self._work = work
        self.go = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.go.acquire()
        world = self.process.world
        world.local.task = self
        try:
            if not self.process.dead:
                self._work()
        except Died:
            pass
        except BaseException as error:  # noqa: BLE001 (the schedule fails with it)
            world.defects.append(error)
        finally:
            self.over = True
            world.back.release()


class Steps:
    """The tasks, and the one thread that tells them to go on."""

    def __init__(self) -> None:
        self.local = threading.local()
        self.back = threading.Semaphore(0)
        self.tasks: list[Task] = []
        self.defects: list[BaseException] = []

    @property
    def task(self) -> Task | None:
        """The one at work, on whose thread this is asked; None on any other thread."""
        return getattr(self.local, "task", None)

    def spawn(self, process: Process, name: str, work: Callable[[], object]) -> Task:
        task = Task(process, name, work)
        self.tasks.append(task)
        return task

    def pause(self, point: str) -> None:
        """Let another task go on, unless this one is within something that is one step."""
        task = self.task
        if task is None:
            return
        if not task.process.dead and not task.atomic:
            task.at = point
            self.back.release()
            task.go.acquire()
        if task.process.dead:
            raise Died

    def atomically(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same as one step. A process can die in it all the same."""

        def one_step(*args: Any, **kwargs: Any) -> Any:
            task = self.local.task
            task.atomic += 1
            try:
                return work(*args, **kwargs)
            finally:
                task.atomic -= 1

        return one_step

    def go_on(self, task: Task) -> None:
        task.go.release()
        self.back.acquire()
        self.clear()

    def clear(self) -> None:
        """End the tasks of the dead."""
        for task in [task for task in self.tasks if task.process.dead and not task.over]:
            task.go.release()
            self.back.acquire()
        self.tasks = [task for task in self.tasks if not task.over]

    def in_one_task(self, process: Process, work: Callable[[], object]) -> None:
        task = self.spawn(process, "arrange", work)
        while not task.over:
            self.go_on(task)
        self.raise_defects()

    def kill(self, process: Process) -> None:
        process.dead = True

    def raise_defects(self) -> None:
        if self.defects:
            raise self.defects[0]


class Tasks(Executor):
    """A pool whose threads are tasks."""

    def __init__(self, process: Process, width: int, name: str) -> None:
        self._process = process
        self._width = width
        self._name = name
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._at_work = 0
        self._shut = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self._waiting.append((future, lambda: fn(*args, **kwargs)))
        self._fill()
        return future

    def _fill(self) -> None:
        while self._waiting and self._at_work < self._width:
            self._at_work += 1
            future, work = self._waiting.popleft()
            self._process.world.spawn(
                self._process, self._name, lambda future=future, work=work: self._one(future, work)
            )

    def _one(self, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            future.set_result(work())
        finally:
            self._at_work -= 1
            if not self._process.dead:
                self._fill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._shut = True
        if cancel_futures:
            self._waiting.clear()
        while wait and self._at_work and self._process.world.task is not None:
            self._process.world.pause("wait for a pool to end")
