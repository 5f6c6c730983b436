"""A workspace's cap holds, is reported, and is freed with it, on a loop-mounted file and in memory."""

from __future__ import annotations

import os
import subprocess
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.docker.loop_disks import LoopDisks
from codesdk.sandbox.isolation import spec as specs
from codesdk.sandbox.isolation.disk_quota import detect_support
from codesdk.sandbox.port import ExitKind, FileError, FileRefused, FileWrite
from sandboxes import request, run, spec
from stage import wait_for

pytestmark = pytest.mark.engine
MIB = 1 << 20


@pytest.fixture(scope="module")
def loops(engine, tmp_path_factory):
    """Sandboxes whose larger workspaces are files; not run where the machine has no loop devices for us."""
    client = Engine(engine.host)
    missing = detect_support(client.endpoint, client.api.info()).loop_missing
    if missing:
        client.close()
        reason = f"no loop-mounted workspaces here: {'; '.join(missing)}"
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true, and this machine cannot run the test: {reason}", pytrace=False)
        pytest.skip(reason)
    made = DockerSandboxes(f"test-{uuid.uuid4().hex}", client, workspaces=tmp_path_factory.mktemp("workspaces"))
    yield made
    made.sweep(())
    made.close()


def attached(loops) -> list[str]:
    """Loop devices of the installation."""
    found = [entry.read_text() for entry in Path("/sys/block").glob("loop*/loop/backing_file")]
    return [file for file in found if str(loops._disks._directory) in file]


@pytest.fixture
def open_on_disk(loops, sandbox_image):
    owners = []

    def open_one(**more):
        asked = spec(loops._instance, sandbox_image, **{"workspace_bytes": 300 * MIB, **more})
        owners.append(asked.owner)
        return loops.open(asked)

    yield open_one
    for owner in owners:
        loops.destroy(owner)
    assert attached(loops) == []
    assert loops._disks.names() == set()


@pytest.fixture(params=["loop", "tmpfs"])
def full_soon(request, open_on_disk):
    """A sandbox with a small workspace of each kind."""
    memory = {"loop": 64 * MIB, "tmpfs": 256 * MIB}[request.param]
    made = open_on_disk(workspace_bytes=40 * MIB, workspace_inodes=2048, memory_bytes=memory)
    assert made.attestation.disk_cap == request.param
    return made


def test_a_full_workspace_is_said_to_tools_and_to_file_operations_and_the_session_lives(full_soon):
    ran = run(full_soon, "sh", "-c", "head -c 100000000 /dev/zero > fill")
    assert ran.result.exit_code != 0
    assert b"No space left" in ran.stderr
    assert full_soon.files.stat("fill").size <= 40 * MIB
    refused = full_soon.files.write((FileWrite(path="more", content=bytes(100_000)),))
    assert isinstance(refused, FileRefused)
    assert refused.error is FileError.NO_SPACE
    assert run(full_soon, "rm", "fill").result.exit_code == 0
    assert not isinstance(full_soon.files.write((FileWrite(path="more", content=b"x"),)), FileRefused)


def test_many_files_end_as_a_full_workspace_too(full_soon):
    ran = run(full_soon, "python3", "-c", "for i in range(5000): open(f'f{i}', 'x').close()")
    assert b"No space left" in ran.stderr
    refused = full_soon.files.write((FileWrite(path="more", content=b"x"),))
    assert isinstance(refused, FileRefused)
    assert refused.error is FileError.NO_SPACE
    assert run(full_soon, "sh", "-c", "rm f1*").result.exit_code == 0
    assert not isinstance(full_soon.files.write((FileWrite(path="more", content=b"x"),)), FileRefused)


@pytest.fixture
def counted(open_sandbox):
    """A sandbox whose cap nothing but the runner's count holds: the driver has no place for workspace files."""
    made = open_sandbox(workspace_bytes=64 * MIB, workspace_inodes=2048, memory_bytes=100 * MIB)
    assert made.attestation.disk_cap == "counted"
    return made


FILL = """
import os, sys
for number in range(100000):
    with open(f"fill-{number}", "wb") as file: file.write(bytes(int(sys.argv[1])))
"""


def test_counted_what_passes_the_cap_is_ended_with_a_word_of_its_own_and_the_session_lives(counted):
    ran = run(counted, "python3", "-c", FILL, str(4 * MIB))
    assert ran.result.kind is ExitKind.DISK_FULL
    used = sum(entry.size for entry in counted.files.list(".").entries)
    assert used < 1024 * MIB  # the overshoot: what was written in a twentieth of a second, and while it was counted
    refused = counted.files.write((FileWrite(path="more", content=b"x"),))
    assert refused.error is FileError.NO_SPACE
    assert run(counted, "sh", "-c", "ls | wc -l").result.exit_code == 0
    ran = run(counted, "sh", "-c", "head -c 50000000 /dev/zero > more; sleep 10")
    assert ran.result.kind is ExitKind.DISK_FULL
    assert run(counted, "sh", "-c", "rm -f *").result.exit_code == 0
    wait_for(
        lambda: not isinstance(counted.files.write((FileWrite(path="more", content=b"x"),)), FileRefused),
        "there is room again",
    )


def test_counted_many_files_and_directories_are_ended_too(counted):
    ran = run(counted, "python3", "-c", FILL, "0")
    assert ran.result.kind is ExitKind.DISK_FULL
    assert counted.files.delete("fill-1") == 1


def test_counted_what_a_tool_hides_in_closed_and_deep_directories_counts(counted):
    program = """
import os, time
os.mkdir("closed"); os.chdir("closed")
for level in range(300): os.mkdir("d" * 100); os.chdir("d" * 100)
for number in range(20):
    with open(f"f{number}", "wb") as file: file.write(bytes(10 << 20))
    os.chmod("/workspace/closed", 0)
time.sleep(15)
"""
    assert run(counted, "python3", "-c", program).result.kind is ExitKind.DISK_FULL
    mode = run(counted, "stat", "-c", "%a", "closed").stdout
    assert mode.strip() == b"0"


def test_counted_neighbours_that_write_much_end_nobody_else(open_sandbox):
    quiet = open_sandbox(workspace_bytes=64 * MIB, memory_bytes=100 * MIB)
    loud = open_sandbox(workspace_bytes=900 * MIB, memory_bytes=100 * MIB, file_bytes=0)
    quiet.processes.start(request("sh", "-c", "echo x > file; sleep 3", call="quiet"))
    assert run(loud, "sh", "-c", "head -c 300000000 /dev/zero > fill").result.exit_code == 0
    quiet.processes.output("quiet", 1, "stdout", 0, wait_s=15)
    (process,) = quiet.processes.list()
    assert process.result.kind is ExitKind.EXITED


def test_the_default_profiles_workspace_is_capped_and_the_tools_own(open_on_disk):
    made = open_on_disk(workspace_bytes=1024 * MIB)
    assert made.attestation.disk_cap == "loop"
    size, inodes = run(made, "df", "--output=size,itotal", "-B1", ".").stdout.split()[-2:]
    assert 0.95 * 1024 * MIB < int(size) <= 1024 * MIB
    assert 100_000 <= int(inodes) < 120_000
    assert run(made, "stat", "-c", "%u", ".").stdout.strip() == str(made._spec.tool_uid).encode()
    assert run(made, "sh", "-c", "ls -A").stdout == b""
    mounted = run(made, "sh", "-c", "grep ' /workspace ' /proc/mounts").stdout
    assert b"nosuid,nodev" in mounted


def test_two_workspaces_are_two_devices(open_on_disk, loops):
    first, second = open_on_disk(), open_on_disk()
    assert len(attached(loops)) == 2
    run(first, "sh", "-c", "echo mine > file")
    assert run(second, "ls").stdout == b""


def test_a_sweep_frees_what_a_killed_worker_left_at_any_step(loops, sandbox_image):
    directory = loops._disks._directory
    directory.mkdir(exist_ok=True)
    wanted = [spec(loops._instance, sandbox_image) for _ in range(3)]
    only_begun, only_attached, with_volume = (specs.container_name(each.instance, each.owner) for each in wanted)
    (directory / f"{only_begun}.ext4.unfinished").write_bytes(b"")
    devices = [
        LoopDisks(directory).make(name, size=8 * MIB, inodes=1024, uid=wanted[0].tool_uid)
        for name in (only_attached, with_volume)
    ]
    loops._engine.api.create_volume(
        with_volume,
        driver="local",
        driver_opts={"type": "ext4", "device": devices[1], "o": "nosuid,nodev"},
        labels=specs.container_labels(wanted[2]),
    )
    swept = loops.sweep(())
    assert set(swept.volumes) == {each.owner for each in wanted}
    assert attached(loops) == []
    assert list(directory.iterdir()) == []


def test_a_sweep_leaves_devices_of_the_living_and_of_others(loops, open_on_disk, tmp_path):
    made = open_on_disk()
    neighbour = LoopDisks(tmp_path)
    neighbour.make("codesdk-neighbour-sbx_1", size=8 * MIB, inodes=1024, uid=os.getuid())
    try:
        assert loops.sweep((made.owner,)).volumes == ()
        assert run(made, "sh", "-c", "echo here > file && cat file").stdout == b"here\n"
        assert neighbour.device("codesdk-neighbour-sbx_1") is not None
    finally:
        neighbour.release("codesdk-neighbour-sbx_1")


def test_a_container_whose_device_is_anothers_now_is_made_anew_before_it_starts(loops, sandbox_image, monkeypatch):
    """After a reboot a volume names a device that may hold another sandbox's files."""
    asked = spec(loops._instance, sandbox_image, workspace_bytes=300 * MIB)
    name = specs.container_name(asked.instance, asked.owner)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "_start", _die)
        patch.setattr(loops._open_sandboxes, "_remove_what_failed", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            loops.open(asked)
    # What a reboot does: the volume names a device by its number, which another file has now. Another installation may
    # take a number at any moment, so the volume is told that of a device which is surely another's.
    loops._disks.release(name)
    other = loops._disks.make("codesdk-other", size=8 * MIB, inodes=1024, uid=1)
    try:
        _name_device(loops, name, other)
        made = loops.open(asked)
        assert loops._disks.device(name) not in (None, other)
        assert run(made, "df", "--output=size", "-B1", ".").stdout.split()[-1] > b"200000000"
    finally:
        loops.destroy(asked.owner)
        loops._disks.release("codesdk-other")


def _name_device(loops, name, device):
    """Let the container's volume name that device."""
    api = loops._engine.api
    (container,) = api.containers(all=True, filters={"name": name})
    found, labels = api.inspect_container(container["Id"]), api.inspect_volume(name)["Labels"]
    options = {**api.inspect_volume(name)["Options"], "device": device}
    api.remove_container(container["Id"])
    api.remove_volume(name)
    api.create_volume(name, driver="local", driver_opts=options, labels=labels)
    asked = specs.spec_from_label(found["Config"]["Labels"][specs.LABEL_SPEC], 1)
    made = loops._engine.client.containers.create(
        **{**specs.container_options(asked), "labels": found["Config"]["Labels"]}
    )
    assert made.name == name


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_paused_sandbox_keeps_its_files_and_its_device(open_on_disk, loops):
    made = open_on_disk()
    run(made, "sh", "-c", "echo kept > file")
    loops.pause(made.owner)
    loops.pause(made.owner)
    loops.resume(made.owner)
    loops.resume(made.owner)
    assert run(made, "cat", "file").stdout == b"kept\n"


def test_a_worker_whose_mounts_were_made_anew_finds_its_devices_again(loops, tmp_path):
    """In a container: the kernel's path of a file begins at the mount that it was opened through, which is gone then."""
    kept, seen = tmp_path / "kept", tmp_path / "seen"
    kept.mkdir()
    seen.mkdir()
    name = f"codesdk-test-{uuid.uuid4().hex}"
    with mounted(kept, seen):
        device = LoopDisks(seen).make(name, size=8 * MIB, inodes=1024, uid=os.getuid())
    try:
        with mounted(kept, seen):
            assert not Path("/sys/block", Path(device).name, "loop/backing_file").read_text().startswith(str(seen))
            again = LoopDisks(seen)
            assert again.device(name) == device
            again.release(name)
            assert again.device(name) is None
    finally:
        LoopDisks(kept).release(name)
    assert list(kept.iterdir()) == []


@contextmanager
def mounted(source, target):
    """As a container's volume: gone with the container, whoever still holds a file of it."""
    subprocess.run(["mount", "--bind", source, target], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", target], check=True)
