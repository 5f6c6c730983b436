"""A local sandbox outlives its worker and nothing outlives the sandbox."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from codesdk.sandbox.local import attestation, cgroups, processes
from codesdk.sandbox.local.driver import LocalSandboxes, _read_processes
from codesdk.sandbox.local.faults import LocalRefused, LocalSandboxOff
from codesdk.sandbox.port import ExitKind, FileError, FileRefused, FileWrite, SandboxMissing, SharedWorkspace
from codesdk.sandbox.port.faults import IsolationDrift, SandboxGone
from codesdk.sandbox.runner.execution import process_tree
from sandboxes import DEADLINE_S, python, run
from stage import wait_for

WORKER = """
import sys
from pathlib import Path
from codesdk.sandbox.local.confinement import Confinement
from codesdk.sandbox.local.driver import LocalSandboxes
from codesdk.sandbox.port import ExecRequest, SandboxSpec
instance, root, found, spec, call, line = sys.argv[1:]
sandboxes = LocalSandboxes(instance, Path(root), Confinement.model_validate_json(found))
sandbox = sandboxes.open(SandboxSpec.model_validate_json(spec))
print("open", flush=True)
sandbox.exec(ExecRequest(call=call, argv=("sh", "-c", line)), lambda chunk: print("said", flush=True))
"""


def living(sandboxes, marker: str) -> list[int]:
    """Processes of this machine with that in their command line."""
    found = []
    for pid in process_tree.all_pids():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in line and b"-c" not in line:
            found.append(pid)
    return found


def root_of(sandboxes: LocalSandboxes) -> Path:
    return sandboxes._directories._root


def test_a_worker_killed_in_mid_call_is_followed_by_one_that_gets_the_whole_result(sandboxes, make_spec):
    asked = make_spec()
    line = "echo begun; n=0; while [ $n -lt 20 ]; do echo $n; n=$((n+1)); sleep 0.05; done"
    words = (
        sandboxes._instance,
        str(root_of(sandboxes)),
        sandboxes.confinement.model_dump_json(),
        asked.model_dump_json(),
    )
    with subprocess.Popen([sys.executable, "-c", WORKER, *words, "call_mid", line], stdout=subprocess.PIPE) as worker:
        assert worker.stdout.readline() == b"open\n"
        assert worker.stdout.readline() == b"said\n"
        worker.kill()
    again = sandboxes.reattach(asked.owner, 2)
    ran = run(again, "sh", "-c", line, call="call_mid")
    assert ran.stdout.decode().split() == ["begun", *map(str, range(20))]
    assert ran.result.exit_code == 0
    sandboxes.destroy(asked.owner)


@pytest.mark.parametrize(
    "escape", ["sleep 901.{n} & wait", "setsid sleep 901.{n} & wait", "(setsid sh -c 'sleep 901.{n}' &) ; sleep 60"]
)
def test_nothing_outlives_destroy(sandboxes, make_spec, escape):
    marker = f"901.{time.monotonic_ns()}"
    made = sandboxes.open(make_spec())
    ends = []

    def work() -> None:
        try:
            run(made, "sh", "-c", escape.format(n=marker.partition(".")[2]))
        except SandboxGone as gone:
            ends.append(gone)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: living(sandboxes, marker), "the tool to run")
    members = _read_processes(sandboxes._directories.of(made.owner))
    group = sandboxes._directories.of(made.owner).group()
    sandboxes.destroy(made.owner)
    thread.join(DEADLINE_S)
    assert ends
    assert living(sandboxes, marker) == []
    assert not any(processes.is_alive(member) for member in members.known)
    assert sandboxes._directories.owners() == []
    assert not any(path.exists() for path in group.directories.values())


def test_a_sweep_removes_what_a_dead_worker_left_and_its_processes(sandboxes, make_spec):
    made = sandboxes.open(make_spec())
    members = _read_processes(sandboxes._directories.of(made.owner))
    made.close()
    fresh = LocalSandboxes(sandboxes._instance, root_of(sandboxes), sandboxes.confinement)
    swept = fresh.sweep(())
    assert made.owner in swept.containers
    assert not any(processes.is_alive(member) for member in members.known)


@pytest.mark.parametrize("victim", ["porter", "first"])
def test_a_sandbox_whose_processes_were_killed_is_gone_and_leaves_nothing(sandboxes, make_spec, victim):
    made = sandboxes.open(make_spec())
    members = _read_processes(sandboxes._directories.of(made.owner))
    process = members.shim if victim == "porter" else members.inner or members.runner
    os.kill(process.pid, signal.SIGKILL)
    wait_for(
        lambda: not processes.is_alive(process), "it to be killed"
    )  # on a loaded machine an exec may still come first
    with pytest.raises(SandboxGone):
        run(made, "true")
    wait_for(lambda: isinstance(sandboxes.reattach(made.owner, 2), SandboxMissing), "the sandbox to be gone")
    sandboxes.destroy(made.owner)
    wait_for(lambda: not any(processes.is_alive(member) for member in members.known), "its processes to end")
    assert sandboxes._directories.owners() == []


def test_an_open_that_was_interrupted_before_its_start_is_made_anew(sandboxes, make_spec):
    asked = make_spec()
    place = sandboxes._directories.make(asked.owner)
    place.write("spec.json", "{}")
    made = sandboxes.open(asked)
    assert run(made, "true").result.exit_code == 0
    sandboxes.destroy(asked.owner)


def test_drift_refuses_the_sandbox_and_removes_it(sandboxes, make_spec, monkeypatch):
    monkeypatch.setattr(attestation, "differences", lambda *_, **__: ("kernel: something is other",))
    with pytest.raises(IsolationDrift, match="something is other"):
        sandboxes.open(make_spec())
    assert sandboxes._directories.owners() == []


def test_a_workspace_of_any_depth_names_and_modes_is_removed(sandboxes, make_spec):
    made = sandboxes.open(make_spec())
    deep = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\nopen('end', 'w'); os.chmod('.', 0)"
    assert python(made, deep).result.exit_code == 0
    assert run(made, "sh", "-c", "mkdir closed && touch closed/in && chmod 0 closed; ln -s / out").result.exit_code == 0
    sandboxes.destroy(made.owner)
    assert sandboxes._directories.owners() == []


def test_profiles_that_only_a_container_can_keep_are_refused(sandboxes, make_spec):
    with pytest.raises(LocalRefused, match="runsc"):
        sandboxes.open(make_spec(runtime="runsc"))
    with pytest.raises(LocalRefused, match="read-only or no workspace"):
        sandboxes.open(make_spec(workspace_mode="ro"))
    lent = SharedWorkspace(owner="sbx_other", place="/workspace")
    with pytest.raises(LocalRefused, match="another workspace"):
        sandboxes.open(make_spec().model_copy(update={"borrows": lent}))


def test_every_weakness_is_in_the_attestation(opened, sandboxes):
    stated = opened.attestation
    assert stated.environment == sandboxes.execution_environment.environment == "codesdk_host"
    whole = sandboxes.confinement.groups.whole
    for word in ("memory: ", "CPU: "):
        assert any(sentence.startswith(word) for sentence in stated.enforced) == whole
        assert any(sentence.startswith(word) for sentence in stated.not_enforced) != whole
    assert (stated.memory_bytes > 0) == whole
    assert any("NOT isolated" in sentence for sentence in stated.not_enforced) == sandboxes.confinement.network


def test_a_cap_that_is_not_as_asked_refuses_the_sandbox(sandboxes, make_spec, monkeypatch):
    if not sandboxes.confinement.groups.whole:
        pytest.skip("exempt where no cgroup may be made: nothing is asked of one")
    settings = cgroups._cap_files

    def looser(control, profile, *, unified):
        return settings(control, profile.model_copy(update={"pids": profile.pids + 1}), unified=unified)

    monkeypatch.setattr(cgroups, "_cap_files", looser)
    with pytest.raises(IsolationDrift, match="cap of pids is 257, expected 256"):
        sandboxes.open(make_spec())
    assert sandboxes._directories.owners() == []


def test_files_reach_the_workspace_by_both_of_its_names(opened, sandboxes):
    opened.files.write((FileWrite(path="/workspace/named", content=b"1"),))
    assert run(opened, "cat", "named", cwd="/workspace").stdout == b"1"


def test_local_sandboxes_are_refused_unless_turned_on(tmp_path):
    from codesdk.sandbox.local.driver import open_local  # noqa: PLC0415 - beside its use
    from codesdk.settings import Settings  # noqa: PLC0415 - likewise

    for word in ("", "off"):
        with pytest.raises(LocalSandboxOff):
            open_local(Settings(data_dir=tmp_path, local_sandbox=word))


FILL = "import sys\nfor number in range(100000): open(f'fill-{number}', 'wb').write(bytes(4 << 20))"


def test_a_large_workspace_is_counted_and_what_passes_its_cap_is_ended(sandboxes, make_spec):
    made = sandboxes.open(make_spec(workspace_bytes=64 << 20, memory_bytes=100 << 20))
    try:
        assert made.attestation.disk_cap == "counted"
        assert any("workspace: at most" in said for said in made.attestation.enforced)
        assert run(made, "python3", "-c", FILL).result.kind is ExitKind.DISK_FULL
        refused = made.files.write((FileWrite(path="more", content=b"x"),))
        assert (isinstance(refused, FileRefused), refused.error) == (True, FileError.NO_SPACE)
        assert run(made, "sh", "-c", "rm -f fill-*").result.exit_code == 0
    finally:
        sandboxes.destroy(made.owner)


def test_a_workspace_without_a_size_is_not_said_to_be_capped(sandboxes, make_spec):
    made = sandboxes.open(make_spec(workspace_bytes=0))
    try:
        assert made.attestation.disk_cap == "none"
        assert "workspace: no cap on its size" in made.attestation.not_enforced
    finally:
        sandboxes.destroy(made.owner)
