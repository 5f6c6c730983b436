"""Our images: found by tag and content, smoke-tested in a sandbox, with a record of their contents."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import uuid
from pathlib import Path

import pytest

from codesdk.provision.images import base_image
from codesdk.provision.images import sandbox_images as provisioned
from codesdk.provision.images.sandbox_images import ImageNotBuilt, ImageStore
from codesdk.sandbox.images import builder
from codesdk.sandbox.images.checks import LABEL_CONTENT
from codesdk.sandbox.port import FileError, FileWrite
from codesdk.sandbox.port.faults import ArchiveRefused
from codesdk.sandbox.profiles.loader import load_profiles
from codesdk.sandbox.runner import kernel
from codesdk.settings import Settings
from sandboxes import run

IMAGES = Path(__file__).resolve().parents[4] / "sandbox-images"
BUILT = ("base", "full", "node")
BUILD_S = 600
"""Deadline where an image must be built: 26 s for `full` and 33 s for `node` on two idle cores, 96 s on busy ones; once
for each content, then found again in 0.2 s."""


@pytest.fixture
def shelf(engine, tmp_path):
    return ImageStore(Settings(data_dir=tmp_path), engine)


@pytest.fixture
def folder(tmp_path, sandboxes):
    """Writes an image of this test's own; what is built of it is removed."""
    name = f"t{uuid.uuid4().hex[:12]}"

    def write(*lines: str) -> str:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "Dockerfile").write_text("\n".join(["ARG BASE_IMAGE", "FROM ${BASE_IMAGE}", *lines, ""]))
        return name

    yield write
    for found in sandboxes._engine.api.images(name=f"{builder.PREFIX}{name}"):
        sandboxes._engine.api.remove_image(found["Id"], force=True)


@pytest.mark.timeout(BUILD_S)
@pytest.mark.parametrize("name", BUILT)
def test_the_smoke_test_passes_in_a_sandbox(engine, open_sandbox, name):
    image = provisioned.ensure_image_built(engine, lambda _: None, name=name)
    box = open_sandbox(image=image, memory_bytes=1 << 30, tmp_bytes=256 << 20, pids=512, file_bytes=1 << 30)
    ran = run(box, "sh", "-s", stdin=(IMAGES / name / "smoke_test.sh").read_bytes(), timeout_s=90)
    assert ran.result.exit_code == 0, (ran.stdout, ran.stderr)
    assert b"no setuid or setgid files" in ran.stdout


@pytest.mark.timeout(BUILD_S)
@pytest.mark.parametrize(("name", "holds"), [("base", "git"), ("node", "nodejs"), ("full", "g++")])
def test_the_packages_of_a_build_are_recorded_in_order(engine, shelf, name, holds):
    found = shelf.packages(provisioned.ensure_image_built(engine, lambda _: None, name=name))
    assert holds in {package.name for package in found}
    assert all(package.version and package.architecture for package in found)
    lines = [f"{package.name} {package.version} {package.architecture}" for package in found]
    assert lines == sorted(lines)


def test_what_is_built_on_an_image_of_ours_is_not_taken_for_it(sandboxes, sandbox_image, folder, tmp_path):
    engine, name = sandboxes._engine, folder("ENV ONE=1")
    ours = builder.ensure_image(engine, name, base=sandbox_image, images=tmp_path)
    labels = engine.api.inspect_image(ours)["Config"]["Labels"]
    content = labels[LABEL_CONTENT]
    child = io.BytesIO(f"FROM {ours}\nENV CHILD=1\n".encode())
    heir, _ = engine.client.images.build(fileobj=child, rm=True, forcerm=True)
    try:
        assert heir.attrs["Config"]["Labels"] == labels  # it inherits every label, and is newer
        assert builder.find_image(engine, name, content) == ours
        engine.api.remove_image(builder.reference(name, content))
        assert builder.find_image(engine, name, content) is None
    finally:
        engine.api.remove_image(heir.id, force=True)


def test_a_host_whose_base_image_was_removed_starts_with_the_build_that_it_has(
    engine, sandboxes, folder, tmp_path, monkeypatch
):
    """And which no network reaches: another base can't be pulled or built."""
    name = folder("ENV THREE=3")
    base = provisioned.ensure_image_built(engine, lambda _: None)
    ours = builder.ensure_image(sandboxes._engine, name, base=base, images=tmp_path)
    child = io.BytesIO(f"FROM {ours}\nENV CHILD=1\n".encode())
    heir, _ = sandboxes._engine.client.images.build(fileobj=child, rm=True, forcerm=True)
    monkeypatch.setattr(base_image, "PUBLIC", "codesdk.invalid/base:none")
    monkeypatch.setattr(base_image, "LOCAL_REPOSITORY", "codesdk.invalid/local")
    monkeypatch.setattr(base_image, "build_with_debootstrap", lambda *_: pytest.fail("it would be built"))
    store = ImageStore(Settings(data_dir=tmp_path / "data", images_dir=tmp_path), engine)
    try:
        assert store.provide(name, lambda _: None) == ours == store.find(name)
        folder("ENV THREE=4")
        with pytest.raises(ImageNotBuilt):
            store.find(name)
    finally:
        sandboxes._engine.api.remove_image(heir.id, force=True)


def test_a_tag_of_ours_on_another_image_is_not_taken_for_it(sandboxes, sandbox_image, folder, tmp_path):
    engine, name = sandboxes._engine, folder("ENV TWO=2")
    content = builder.content_hash(tmp_path / name, sandbox_image)
    repository, _, tag = builder.reference(name, content).partition(":")
    engine.api.tag(sandbox_image, repository, tag)
    try:
        assert builder.find_image(engine, name, content) is None
        assert builder.ensure_image(engine, name, base=sandbox_image, images=tmp_path) != sandbox_image
    finally:
        engine.api.remove_image(builder.reference(name, content), force=True)


def test_an_image_below_is_built_first_and_its_change_is_seen(sandboxes, sandbox_image, folder, tmp_path):
    engine, below = sandboxes._engine, folder("ENV BELOW=1")
    top = tmp_path / f"{below}-top"
    top.mkdir()
    (top / "Dockerfile").write_text(f"ARG BASE_IMAGE={builder.PREFIX}{below}\nFROM ${{BASE_IMAGE}}\nENV TOP=1\n")
    find = {"base": sandbox_image, "images": tmp_path}
    built = []
    try:
        assert builder.locate_image(engine, top.name, **find) is None
        built.append(builder.ensure_image(engine, top.name, **find))
        assert builder.locate_image(engine, top.name, **find) == built[0]
        assert "BELOW=1" in engine.api.inspect_image(built[0])["Config"]["Env"]
        folder("ENV BELOW=2")
        assert builder.locate_image(engine, top.name, **find) is None
        built.append(builder.ensure_image(engine, top.name, **find))
        assert "BELOW=2" in engine.api.inspect_image(built[1])["Config"]["Env"]
    finally:
        for image in built:
            engine.api.remove_image(image, force=True)


def test_an_image_whose_folder_changed_is_named_with_the_command_that_builds_it(engine, folder, tmp_path):
    name = folder("ENV NEVER=built")
    shelf = ImageStore(Settings(data_dir=tmp_path / "data", images_dir=tmp_path), engine)
    with pytest.raises(ImageNotBuilt) as raised:
        shelf.find(name)
    assert raised.value.advice() == f"Build it with `codesdk images build {name}`."
    assert shelf.offer([name, "unknown"]).missing.keys() == {name, "unknown"}


def test_the_command_lists_and_checks(engine, sandbox_image, tmp_path):
    def codesdk(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "codesdk.cli", "images", *words, "--data-dir", str(tmp_path), "--json"]
        environ = {**os.environ, "CODESDK_DOCKER_HOST": engine.host}
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=environ)

    rows = {row["name"]: row for row in json.loads(codesdk("list").stdout)["images"]}
    assert rows.keys() == set(BUILT)
    assert rows["base"]["id"] == sandbox_image
    assert "default" in rows["base"]["profiles"]
    assert {"name", "version", "architecture"} == rows["base"]["packages"][0].keys()
    assert json.loads(codesdk("build").stdout)["images"] == {"base": sandbox_image}
    checked = json.loads(codesdk("check", "base").stdout)
    assert (checked["image"], checked["listed"]) == (sandbox_image, True)
    gone = codesdk("check", "sha256:" + "0" * 64)
    assert (gone.returncode, json.loads(gone.stderr)["error"]["code"]) == (69, "IMAGE_MISSING")


# -- what a profile asks of a sandbox -----------------------------------------------------------------------------------


def archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        info = tarfile.TarInfo("bin/hello")
        info.mode, info.size = 0o700, 10
        tar.addfile(info, io.BytesIO(b"echo hello"))
    return packed.getvalue()


ATTEMPTS = "touch new; echo x >> bin/hello; rm -f bin/hello; chmod 777 . bin; mv bin other; mkdir d; ls -A"


def test_a_read_only_workspace_holds_the_seed_and_takes_no_change(open_sandbox):
    box = open_sandbox(workspace_mode="ro", workspace_bytes=16 << 20)
    assert box.import_tar(archive()) == 1
    assert run(box, "sh", "bin/hello").stdout == b"hello\n"
    assert run(box, "sh", "-c", f"{ATTEMPTS} 2>/dev/null").stdout == b"bin\n"
    refused = box.files.write((FileWrite(path="new", content=b"x"),))
    assert refused.error is FileError.PERMISSION
    assert run(box, "sh", "bin/hello").stdout == b"hello\n"
    assert run(box, "id", "-u").stdout.strip() == str(box.attestation.tool_uid).encode()


def test_the_file_thread_is_the_tool_again_after_a_seed(open_sandbox):
    box = open_sandbox(workspace_mode="ro", workspace_bytes=16 << 20)
    box.import_tar(archive())
    assert box.files.write((FileWrite(path="bin/new", content=b"x"),)).error is FileError.PERMISSION


def test_what_a_read_only_workspace_was_seeded_with_is_neither_roots_nor_the_tools_and_takes_no_change(open_sandbox):
    """Also where the archive says that all may write, and where it brings what root would have to fear."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, mode in (("open", 0o666), ("setuid", 0o6777), ("deep/closed", 0o000)):
            info = tarfile.TarInfo(name)
            info.mode, info.size, info.uid, info.gid = mode, 4, 0, 0
            tar.addfile(info, io.BytesIO(b"seed"))
    box = open_sandbox(workspace_mode="ro", workspace_bytes=16 << 20)
    assert box.import_tar(packed.getvalue()) == 3
    seen = run(box, "sh", "-c", "stat -c '%n %u %g %a' . open setuid deep deep/closed").stdout.decode().splitlines()
    owner = f"{kernel.SEED_UID} {kernel.SEED_UID}"
    wanted = [(".", 755), ("open", 644), ("setuid", 755), ("deep", 755), ("deep/closed", 644)]
    assert seen == [f"{name} {owner} {mode}" for name, mode in wanted]
    assert run(box, "sh", "-c", "cat deep/closed && echo x >> open").result.exit_code == 2


def test_a_sandbox_without_a_workspace_refuses_every_way_of_writing(open_sandbox):
    box = open_sandbox(workspace_mode="none", workspace_bytes=16 << 20)
    assert run(box, "stat", "-c", "%u %a", ".").stdout == b"0 755\n"
    for answer in (
        box.files.write((FileWrite(path="x", content=b"x"),)),
        box.files.make_directory("d"),
        box.files.upload("u", [b"x"]),
    ):
        assert answer.error is FileError.PERMISSION
    assert box.files.list(".").entries == ()


def test_a_sandbox_without_a_workspace_has_an_empty_place_that_takes_nothing(open_sandbox):
    box = open_sandbox(workspace_mode="none", workspace_bytes=16 << 20)
    with pytest.raises(ArchiveRefused):
        box.import_tar(archive())
    assert run(box, "sh", "-c", f"{ATTEMPTS} 2>/dev/null; pwd").stdout == b"/workspace\n"


def test_swap_is_what_the_profile_says(sandboxes, open_sandbox):
    box = open_sandbox(memory_bytes=256 << 20, swap_bytes=64 << 20)
    (found,) = sandboxes._engine.api.containers(filters={"label": f"codesdk.owner={box.owner}"})
    host = sandboxes._engine.api.inspect_container(found["Id"])["HostConfig"]
    assert (host["Memory"], host["MemorySwap"]) == (256 << 20, 320 << 20)


def test_the_small_profile_runs_a_tool(sandboxes, make_spec):
    small = load_profiles(IMAGES / "profiles").named("small")
    asked = make_spec().model_copy(update={"profile": small})
    try:
        box = sandboxes.open(asked)
        assert run(box, "python3", "-c", "print(6 * 7)").stdout == b"42\n"
    finally:
        sandboxes.destroy(asked.owner)
