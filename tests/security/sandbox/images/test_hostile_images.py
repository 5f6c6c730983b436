"""Hostile images: nothing in them gets root in the runner, or corrupts our records."""

from __future__ import annotations

import io
import tarfile

import pytest

from codesdk.provision.images.sandbox_images import ImageStore
from codesdk.sandbox.images import builder
from codesdk.sandbox.images.python_probe import find_python
from codesdk.sandbox.isolation import spec as specs
from codesdk.sandbox.port.faults import ImageMissing, ImageRefused, ImageUnusable
from codesdk.settings import Settings
from sandboxes import run

SITE = "import os; open('/tmp/site-' + str(os.geteuid()), 'w').close()"


@pytest.fixture
def build(sandboxes, sandbox_image):
    """Builds on the default image, as root, with files beside the Dockerfile; removed when the test is over."""
    made = []

    def build_one(*lines: str, **files: str) -> str:
        context = io.BytesIO()
        texts = {"Dockerfile": "\n".join([f"FROM {sandbox_image}", "USER 0", *lines]), **files}
        with tarfile.open(fileobj=context, mode="w") as tar:
            for name, text in texts.items():
                info = tarfile.TarInfo(name)
                info.mode, info.size = 0o755, len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
        context.seek(0)
        image, _ = sandboxes._engine.client.images.build(fileobj=context, custom_context=True, rm=True, forcerm=True)
        made.append(image.id)
        return image.id

    yield build_one
    for image in made:
        sandboxes._engine.api.remove_image(image, force=True)


@pytest.fixture
def shelf(engine, tmp_path):
    return ImageStore(Settings(data_dir=tmp_path), engine)


def left(sandboxes) -> list:
    label = {"label": f"{specs.LABEL_INSTANCE}={sandboxes._instance}"}
    api = sandboxes._engine.api
    return [*api.containers(all=True, filters=label), *(api.volumes(filters=label)["Volumes"] or [])]


def test_a_sitecustomize_of_the_image_runs_as_a_tool_and_never_as_root(build, open_sandbox):
    place = "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()[\"stdlib\"])')"
    image = build("COPY sitecustomize /tmp/s.py", f"RUN cp /tmp/s.py {place}/sitecustomize.py && cp /tmp/s.py "
                  f"{place}/usercustomize.py", sitecustomize=SITE)  # fmt: skip
    box = open_sandbox(image=image)
    assert run(box, "sh", "-c", "ls /tmp | grep site-").stdout == b""  # the runner and its threads are up
    run(box, "python3", "-c", "pass")
    uid = box.attestation.tool_uid
    assert run(box, "sh", "-c", "ls /tmp | grep site-").stdout.decode().split() == [f"site-{uid}"]


def test_a_module_of_the_working_directory_or_path_is_not_imported_by_root(build, open_sandbox):
    image = build("COPY json /json.py", "COPY json /workspace/json.py", "WORKDIR /", json=SITE)
    box = open_sandbox(image=image)
    assert run(box, "sh", "-c", "ls /tmp | grep site-").stdout == b""


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ENV LD_PRELOAD=/lib/x.so", "LD_PRELOAD"),
        ("ENV PYTHONPATH=/evil", "PYTHONPATH"),
        ("VOLUME /data", "volumes"),
        ("LABEL codesdk.owner=sbx_other", "labels"),
        ("LABEL codesdk.instance=another", "labels"),
    ],
)
def test_what_would_reach_root_or_our_bookkeeping_is_refused_before_anything_is_made(
    sandboxes, make_spec, build, shelf, *, line, says
):
    image = build(line)
    with pytest.raises(ImageRefused, match=says):
        sandboxes.open(make_spec(image=image))
    with pytest.raises(ImageRefused, match=says):
        shelf.check(image)
    assert left(sandboxes) == []


def test_a_health_check_an_entrypoint_and_a_user_of_the_image_are_not_used(sandboxes, build, open_sandbox):
    image = build(
        "HEALTHCHECK --interval=1s CMD touch /tmp/health-$(id -u)",
        'ENTRYPOINT ["/bin/sh", "-c", "touch /tmp/entry"]',
        "STOPSIGNAL SIGUSR1",
        "USER 4242",
        "WORKDIR /proc",
    )
    box = open_sandbox(image=image)
    ran = run(box, "sh", "-c", "sleep 2; ls /tmp; id -u")  # two of its intervals
    assert ran.stdout.split() == [b"home", str(box.attestation.tool_uid).encode()]
    (found,) = sandboxes._engine.api.containers(filters={"label": f"{specs.LABEL_OWNER}={box.owner}"})
    config = sandboxes._engine.api.inspect_container(found["Id"])["Config"]
    assert (config["StopSignal"], config["Healthcheck"]["Test"], config["User"]) == ("SIGKILL", ["NONE"], "0:0")
    assert "Health" not in sandboxes._engine.api.inspect_container(found["Id"])["State"]


def test_image_labels_that_are_inherited_hide_no_sandbox_from_the_sweep_and_forge_none(sandboxes, make_spec, build):
    asked = make_spec(image=build("LABEL codesdk.image.name=base", "LABEL codesdk.image.content=sha256:forged"))
    sandboxes.open(asked)
    assert builder.find_image(sandboxes._engine, "base", "sha256:forged") is None
    assert sandboxes.sweep(()).containers == (asked.owner,)
    assert left(sandboxes) == []


def python(program: str) -> tuple[str, str]:
    """Lines that put a shell script in the place of every python3."""
    return (
        f"RUN printf '%s\\n' '#!/bin/sh' '{program}' > /p && chmod +x /p",
        "RUN rm -f /usr/local/bin/python3 && ln -sf /p /usr/bin/python3",
    )


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (("RUN rm -f /usr/bin/python3 /usr/local/bin/python3",), "has no python3"),
        (python("exit 3"), "exit code 3"),
        (python('echo "{\\"version\\": [3, 7, 2]}"'), r"python3 is 3\.7\.2"),
        (python("yes | head -c 100000000"), "gave no answer"),
        (("RUN rm -rf $(python3 -c 'import ctypes, os; print(os.path.dirname(ctypes.__file__))')",), "lacks ctypes"),
    ],
)
def test_an_image_without_a_python_that_will_do_is_told_so_clearly(sandboxes, build, shelf, lines, says):
    with pytest.raises(ImageUnusable, match=says) as raised:
        shelf.check(build(*lines))
    assert "Python 3.9 or later" in raised.value.advice()
    label = f"{specs.LABEL_INSTANCE}={shelf._settings.instance_id()}"
    assert sandboxes._engine.api.containers(all=True, filters={"label": label}) == []


def test_a_python_is_looked_for_once_for_each_image(shelf, build, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "codesdk.provision.images.sandbox_images.find_python", lambda *more: asked.append(more) or find_python(*more)
    )
    image = build("ENV ONE=1")
    assert shelf.check(image) == shelf.check(image)
    assert len(asked) == 1


def test_only_a_listed_digest_that_is_here_can_be_named_by_a_profile(engine, build, tmp_path):
    image = build("ENV ONE=1")
    (tmp_path / "images.yaml").write_text(
        f"version: 1\nimages:\n  mine: {image}\n  gone: sha256:{'0' * 64}\n  evil: {build('VOLUME /x')}\n"
    )
    shelf = ImageStore(Settings(data_dir=tmp_path), engine)
    offer = shelf.offer(["mine", "gone", "evil", "other"])
    assert offer.images == {"mine": image}
    assert "is not on the Docker engine" in offer.missing["gone"]
    assert "volumes (/x)" in offer.missing["evil"]
    assert "There is no sandbox image `other`" in offer.missing["other"]
    with pytest.raises(ImageMissing):
        shelf.find("gone")


def test_a_package_list_that_is_a_link_a_flood_or_rubbish_gives_nothing(shelf, build):
    place = builder.PACKAGES
    assert shelf.packages(build(f"RUN ln -sf /etc/passwd {place}")) == ()
    assert shelf.packages(build(f"RUN rm {place} && head -c 20000000 /dev/zero > {place}")) == ()
    assert shelf.packages(build(f"RUN rm {place} && mkdir {place}")) == ()
    assert shelf.packages(build(f"RUN rm {place}")) == ()
