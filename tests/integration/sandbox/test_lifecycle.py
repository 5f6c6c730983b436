"""Nothing outlives its owner, and every failure has one clear line."""

from __future__ import annotations

import io
import tarfile
import threading
import uuid

import pytest

from codesdk.sandbox.docker import attestation
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.images import builder
from codesdk.sandbox.isolation import spec as specs
from codesdk.sandbox.port import SandboxMissing
from codesdk.sandbox.port.faults import EngineUnavailable, ImageRefused, ImageUnusable, IsolationDrift, SandboxGone
from sandboxes import DEADLINE_S, run

pytestmark = pytest.mark.engine


def left(sandboxes) -> int:
    """Containers and volumes of the instance, without those of the module's own sandbox."""
    wanted = {"label": f"codesdk.instance={sandboxes._instance}"}
    api = sandboxes._engine.api
    found = [*api.containers(all=True, filters=wanted), *(api.volumes(filters=wanted)["Volumes"] or [])]
    return sum(item["Labels"]["codesdk.owner"] not in sandboxes._open_sandboxes._open_by_owner for item in found)


def test_an_engine_that_does_not_answer_is_named_with_what_to_do(tmp_path):
    with pytest.raises(EngineUnavailable, match=r"nothing\.sock.*CODESDK_DOCKER_HOST"):
        Engine(f"unix://{tmp_path}/nothing.sock")


def test_drift_refuses_the_sandbox_and_removes_it(sandboxes, make_spec, monkeypatch):
    monkeypatch.setitem(specs.CAPABILITIES, "NET_RAW", "a grant that the expectations do not know")
    monkeypatch.setattr(attestation, "CAPABILITIES", {name: "" for name in specs.CAPABILITIES if name != "NET_RAW"})
    with pytest.raises(IsolationDrift, match="NET_RAW"):
        sandboxes.open(make_spec())
    assert left(sandboxes) == 0


def test_a_container_that_was_killed_is_gone_and_is_not_started_again(sandboxes, make_spec):
    asked = make_spec()
    made = sandboxes.open(asked)
    sandboxes._engine.api.kill(specs.container_name(asked.instance, asked.owner))
    with pytest.raises(SandboxGone, match="137"):
        run(made, "true")
    found = sandboxes.reattach(asked.owner, 2)
    assert isinstance(found, SandboxMissing)
    with pytest.raises(SandboxGone):
        sandboxes.open(asked)
    assert left(sandboxes) == 0


def test_a_container_that_dies_under_an_exec_ends_it_as_gone(sandboxes, make_spec):
    asked = make_spec()
    made = sandboxes.open(asked)
    threading.Timer(0.5, lambda: sandboxes._engine.api.kill(specs.container_name(asked.instance, asked.owner))).start()
    with pytest.raises(SandboxGone, match="exited"):
        run(made, "sleep", "30")
    sandboxes.destroy(asked.owner)


def test_a_destroy_ends_a_running_exec_as_gone(sandboxes, make_spec):
    asked = make_spec()
    made = sandboxes.open(asked)
    threading.Timer(0.3, lambda: sandboxes.destroy(asked.owner)).start()
    with pytest.raises(SandboxGone, match="destroyed"):
        run(made, "sleep", "30")


def test_an_open_that_was_interrupted_after_any_step_is_taken_up(sandboxes, make_spec):
    for step in ("_start", "_attest"):
        asked = make_spec()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sandboxes, step, _die)
            patch.setattr(
                sandboxes._open_sandboxes, "_remove_what_failed", lambda *_: None
            )  # the process died: nobody cleaned up
            with pytest.raises(KeyboardInterrupt):
                sandboxes.open(asked)
        assert run(sandboxes.open(asked), "echo", "up").stdout == b"up\n"
        sandboxes.destroy(asked.owner)


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_open_that_fails_leaves_nothing(sandboxes, make_spec, monkeypatch):
    monkeypatch.setattr(sandboxes, "_attest", _die)
    with pytest.raises(KeyboardInterrupt):
        sandboxes.open(make_spec())
    assert left(sandboxes) == 0


def test_a_destroy_wins_over_an_open_under_way(sandboxes, make_spec, monkeypatch):
    asked = make_spec()
    start = sandboxes._start

    def destroyed_meanwhile(name, spec) -> None:
        sandboxes.destroy(spec.owner)
        start(name, spec)

    monkeypatch.setattr(sandboxes, "_start", destroyed_meanwhile)
    with pytest.raises(Exception, match=r"gone|destroyed|No such container|refused"):
        sandboxes.open(asked)
    assert left(sandboxes) == 0


def test_two_destroys_at_once_both_succeed(sandboxes, make_spec):
    asked = make_spec()
    sandboxes.open(asked)
    faults = []

    def destroy() -> None:
        try:
            sandboxes.destroy(asked.owner)
        except Exception as fault:  # noqa: BLE001 - the test is that there is none
            faults.append(fault)

    threads = [threading.Thread(target=destroy) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert faults == []
    assert left(sandboxes) == 0


def test_two_opens_of_one_owner_at_once_give_one_sandbox(sandboxes, make_spec):
    asked, found = make_spec(), []
    threads = [threading.Thread(target=lambda: found.append(sandboxes.open(asked))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(found) == 3
    assert {run(made, "echo", "up").stdout for made in found} == {b"up\n"}
    sandboxes.destroy(asked.owner)
    assert left(sandboxes) == 0


def test_a_sweep_leaves_another_installations_sandboxes(engine, sandboxes, make_spec):
    asked = make_spec()
    sandboxes.open(asked)
    neighbour = DockerSandboxes(f"test-{uuid.uuid4().hex}", Engine(engine.host))
    assert neighbour.sweep(()).containers == ()
    assert sandboxes.sweep(()).containers == (asked.owner,)
    neighbour.close()


def test_a_sweep_finds_a_volume_without_a_container(sandboxes, make_spec):
    asked = make_spec()
    sandboxes._engine.api.create_volume(
        specs.container_name(asked.instance, asked.owner), labels=specs.container_labels(asked)
    )
    assert sandboxes.sweep(()).volumes == (asked.owner,)
    assert left(sandboxes) == 0


def _image(engine: Engine, base: str, *lines: str) -> str:
    dockerfile = "\n".join([f"FROM {base}", *lines]).encode()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(dockerfile)
        tar.addfile(info, io.BytesIO(dockerfile))
    context.seek(0)
    image, _ = engine.client.images.build(fileobj=context, custom_context=True, rm=True, forcerm=True)
    return image.id


@pytest.fixture
def build(sandboxes, sandbox_image):
    made = []

    def build_one(*lines: str) -> str:
        made.append(_image(sandboxes._engine, sandbox_image, *lines))
        return made[-1]

    yield build_one
    for image in made:
        sandboxes._engine.api.remove_image(image, force=True)


def test_an_image_with_a_volume_a_preload_or_our_labels_is_refused(sandboxes, make_spec, build):
    image = build("VOLUME /data", "ENV LD_PRELOAD=/x.so", "LABEL codesdk.owner=sbx_x")
    with pytest.raises(ImageRefused, match=r"volumes.*LD_PRELOAD.*labels"):
        sandboxes.open(make_spec(image=image))
    assert left(sandboxes) == 0


def test_entrypoint_user_and_health_check_of_an_image_are_not_used(sandboxes, make_spec, build):
    image = build(
        'ENTRYPOINT ["/bin/false"]', "USER 12345", "HEALTHCHECK --interval=1s CMD false", "STOPSIGNAL SIGUSR1"
    )
    asked = make_spec(image=image)
    assert run(sandboxes.open(asked), "echo", "up").stdout == b"up\n"
    sandboxes.destroy(asked.owner)


def test_an_image_without_python_gets_a_clear_message(sandboxes, make_spec, build):
    image = build("USER 0", "RUN mv /usr/bin/python3 /usr/bin/hidden && rm -f /usr/local/bin/python3")
    with pytest.raises(ImageUnusable, match=r"Python 3\.9 or later"):
        sandboxes.open(make_spec(image=image))
    assert left(sandboxes) == 0


def test_an_image_is_built_once_and_found_by_its_content(sandboxes, sandbox_image, tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nENV TINY=1\n")
    engine = sandboxes._engine
    first = builder.ensure_image(engine, "tiny", base=sandbox_image, images=tmp_path)
    assert builder.ensure_image(engine, "tiny", base=sandbox_image, images=tmp_path) == first
    (folder / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nENV TINY=2\n")
    second = builder.ensure_image(engine, "tiny", base=sandbox_image, images=tmp_path)
    assert second != first
    for image in (first, second):
        engine.api.remove_image(image, force=True)


def test_a_build_that_fails_shows_its_last_lines(sandboxes, sandbox_image, tmp_path):
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN echo the reason; exit 3\n")
    with pytest.raises(builder.BuildFailed) as failed:
        builder.ensure_image(sandboxes._engine, "broken", base=sandbox_image, images=tmp_path)
    assert "the reason" in str(failed.value.details["log"])


def test_the_smoke_test_of_the_default_image_passes(sandbox, request):
    script = (request.config.rootpath / "sandbox-images/base/smoke_test.sh").read_bytes()
    ran = run(sandbox, "sh", "-s", stdin=script)
    assert ran.result.exit_code == 0, ran.stderr
    assert b"no setuid or setgid files" in ran.stdout


def test_twelve_opens_at_once_succeed_and_leave_nothing(sandboxes, make_spec):
    specs_asked = [make_spec() for _ in range(12)]
    faults = []

    def whole_life(asked) -> None:
        try:
            assert run(sandboxes.open(asked), "echo", "up").stdout == b"up\n"
            sandboxes.destroy(asked.owner)
        except Exception as fault:  # noqa: BLE001 - the test is that there is none
            faults.append(fault)

    threads = [threading.Thread(target=whole_life, args=(asked,)) for asked in specs_asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    assert left(sandboxes) == 0
