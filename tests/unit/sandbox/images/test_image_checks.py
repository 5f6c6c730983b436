"""Forbidden contents of an image, entries of the operator's list, and requirements on its Python."""

from __future__ import annotations

import pytest

from codesdk.sandbox.images.allowlist import AllowlistInvalid, add_image, read_allowlist
from codesdk.sandbox.images.builder import content_hash, image_names, reference
from codesdk.sandbox.images.checks import LABEL_CONTENT, LABEL_NAME, refusals
from codesdk.sandbox.images.python_probe import required_modules
from codesdk.sandbox.isolation.spec import LABEL_INSTANCE, LABEL_OWNER, LABEL_SPEC

DIGEST = "sha256:" + "a" * 64


def image(**config) -> dict:
    return {"Id": DIGEST, "Os": "linux", "Architecture": "amd64", "Config": config}


def test_entrypoint_user_health_check_stop_signal_and_ports_are_no_reasons():
    found = image(
        Entrypoint=["/evil"], Cmd=["x"], User="12345", Healthcheck={"Test": ["CMD", "x"]}, StopSignal="SIGUSR1",
        WorkingDir="/proc", ExposedPorts={"1/tcp": {}}, OnBuild=["RUN x"], Shell=["/evil"],
        Env=["PATH=/usr/bin", "PYTHON_VERSION=3.12.1", "PYTHON_SHA256=x", "LANG=C.UTF-8", "OLD_LD_PATH=x"],
    )  # fmt: skip
    assert refusals(found, "amd64") == ()


@pytest.mark.parametrize(
    "entry",
    ["LD_PRELOAD=/x.so", "LD_LIBRARY_PATH=/x", "LD_AUDIT=x", "PYTHONPATH=/x", "PYTHONSTARTUP=x", "PYTHONHOME=",
     "PYTHONINSPECT=1", "GLIBC_TUNABLES=x", "GCONV_PATH=/x", "BASH_ENV=/x", "ENV=/x", "LD_PRELOAD"],
)  # fmt: skip
def test_a_variable_that_a_loader_or_interpreter_obeys_is_refused(entry):
    assert entry.partition("=")[0] in refusals(image(Env=["PATH=/bin", entry]))[0]


@pytest.mark.parametrize("label", [LABEL_INSTANCE, LABEL_OWNER, LABEL_SPEC, "codesdk.disk", "codesdk.anything.new"])
def test_a_label_that_says_whose_a_sandbox_is_is_refused(label):
    assert label in refusals(image(Labels={label: "x"}))[0]


def test_labels_that_images_built_on_ours_inherit_are_not_refused():
    assert refusals(image(Labels={LABEL_NAME: "base", LABEL_CONTENT: "x", "codesdk.base": "x", "org.x": "y"})) == ()


def test_volumes_another_system_and_another_machine_are_refused():
    assert "volumes (/data, /var/db)" in refusals(image(Volumes={"/var/db": {}, "/data": {}}))[0]
    assert "for arm64, the engine's machine is amd64" in refusals({**image(), "Architecture": "arm64"}, "amd64")[0]
    assert "for windows" in refusals({**image(), "Os": "windows"}, "amd64")[0]


def test_all_reasons_are_told_at_once_and_a_flood_of_them_is_cut():
    found = image(Volumes={f"/{n:03}{'x' * 500}": {} for n in range(1000)}, Env=["LD_A=1"], Labels={LABEL_OWNER: "x"})
    reasons = refusals(found)
    assert len(reasons) == 3
    assert "and 992 more" in reasons[0]
    assert len(reasons[0]) < 1000


def test_an_image_without_any_configuration_is_no_reason_to_fail():
    assert refusals({"Id": DIGEST, "Config": None}) == ()


def test_the_list_gives_digests_by_name(tmp_path):
    path = tmp_path / "images.yaml"
    path.write_text(f"version: 1\nimages:\n  data-science: {DIGEST}\n")
    assert read_allowlist(path) == {"data-science": DIGEST}
    assert read_allowlist(tmp_path / "none.yaml", optional=True) == {}
    with pytest.raises(AllowlistInvalid, match="cannot be read"):
        read_allowlist(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("line", "says", "place"),
    [
        ("mine: python:3.12", "pattern", (3, 3)),
        ("mine: sha256:abc", "pattern", (3, 3)),
        ("base: " + DIGEST, "name of an image of sandbox-images", (3, 3)),
        ("Mine/x: " + DIGEST, "pattern", (3, 3)),
    ],
)
def test_a_tag_a_short_digest_or_a_name_of_ours_is_refused_with_its_place(tmp_path, line, says, place):
    path = tmp_path / "images.yaml"
    path.write_text(f"version: 1\nimages:\n  {line}\n")
    with pytest.raises(AllowlistInvalid, match=says) as raised:
        read_allowlist(path, ["base"])
    assert (raised.value.details["line"], raised.value.details["column"]) == place


@pytest.mark.parametrize(
    "before",
    [
        "",
        "version: 1\nimages:\n  other: sha256:" + "b" * 64 + "\n",
        "version: 1\nimages:  # ours\n\n    # read in May\n    other: sha256:" + "b" * 64 + "  # kept",
        "version: 1\nimages:\n  mcp-time: sha256:" + "c" * 64 + "  # old\n  other: sha256:" + "b" * 64 + "\n",
    ],
)
def test_an_image_is_put_on_the_list_and_all_else_stays(tmp_path, before):
    after = add_image(before, "mcp-time", DIGEST)
    path = tmp_path / "images.yaml"
    path.write_text(after)
    others = {"other": "sha256:" + "b" * 64} if before else {}
    assert read_allowlist(path) == {**others, "mcp-time": DIGEST}
    assert [
        part for part in ("# ours", "# read in May", "# kept", "# old") if part in before and part not in after
    ] == []
    assert add_image(after, "mcp-time", DIGEST) == after


@pytest.mark.parametrize("images", ["{}", "{mcp-time: x}", "\n  'mcp-time': sha256:" + "b" * 64])
def test_a_list_that_is_laid_out_otherwise_is_left_to_people(images):
    assert add_image(f"version: 1\nimages: {images}\n", "mcp-time", DIGEST) is None


def test_a_text_about_an_image_changes_nothing_and_a_build_step_does(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    first = content_hash(tmp_path, "base")
    (tmp_path / "README.md").write_text("better")
    (tmp_path / "smoke_test.sh").write_text("better")
    assert content_hash(tmp_path, "base") == first
    (tmp_path / "Dockerfile").write_text("FROM x\nRUN y\n")
    assert content_hash(tmp_path, "base") != first


def test_a_reference_is_one_that_docker_takes(tmp_path):
    name, _, tag = reference("base", content_hash(tmp_path, "b")).partition(":")
    assert name == "codesdk-sandbox-base"
    assert len(tag) == 64


def test_a_folder_without_a_dockerfile_is_no_image(tmp_path):
    (tmp_path / "profiles").mkdir()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "Dockerfile").write_text("FROM x")
    assert image_names(tmp_path) == ("one",)


def test_the_probe_asks_for_every_module_that_the_runner_imports():
    assert {"ctypes", "tarfile", "json", "select"} <= set(required_modules())
    assert not [name for name in required_modules() if name.startswith("codesdk")]
