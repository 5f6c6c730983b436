"""Secrets as files: their tenants, refusals, and that no message contains one."""

from __future__ import annotations

import os

import pytest

from codesdk.domain.ids import CountingIds, IdKind
from codesdk.provision.checks import doctor
from codesdk.provision.checks.check import Status
from codesdk.sandbox.egress.secret_files import MAX_BYTES, SecretFiles, SecretUnusable, list_secrets

SECRET = "s3cr3t-value"
TENANT = CountingIds().new(IdKind.TENANT)


@pytest.fixture
def folder(tmp_path):
    """Puts a secret of a tenant there."""

    def put(content: str | bytes = SECRET, *, tenant: str = "acme", name: str = "api-key", mode: int = 0o600):
        (tmp_path / tenant).mkdir(mode=0o700, exist_ok=True)
        path = tmp_path / tenant / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path

    put.root = tmp_path
    return put


def store(folder, tenant: str | None = "acme") -> SecretFiles:
    return SecretFiles(folder.root, lambda _owner: tenant)


@pytest.mark.parametrize("content", [SECRET, f"{SECRET}\n", f"{SECRET}\r\n"])
def test_a_secret_is_its_file_without_the_line_end(folder, content):
    folder(content)
    assert store(folder)("sbx", "api-key") == SECRET


def test_a_changed_file_counts_at_once(folder):
    folder()
    found = store(folder)
    assert found("sbx", "api-key") == SECRET
    folder("another")
    assert found("sbx", "api-key") == "another"


def test_a_tenant_has_its_own_secrets_and_no_others(folder):
    folder(tenant="acme")
    folder("theirs", tenant="other", name="only-theirs")
    assert store(folder)("sbx", "only-theirs") is None
    assert store(folder, "other")("sbx", "only-theirs") == "theirs"
    assert store(folder, None)("sbx", "api-key") is None


@pytest.mark.parametrize("name", ["../other/key", "..", ".", "", "/etc/passwd", "a/b", "a\0b", ".hidden", "x" * 201])
def test_a_name_that_is_no_files_name_is_no_secret(folder, name):
    folder(tenant="other", name="key")
    assert store(folder)("sbx", name) is None


@pytest.mark.parametrize("tenant", ["..", "a/b", "", "Kunden & Co"])
def test_a_tenant_that_is_no_folders_name_has_none(folder, tenant):
    folder()
    assert store(folder, tenant)("sbx", "api-key") is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o611])
def test_a_file_that_others_may_touch_is_refused(folder, mode):
    folder(mode=mode)
    with pytest.raises(SecretUnusable, match=f"mode 0{mode:03o}") as caught:
        store(folder)("sbx", "api-key")
    assert "chmod 600" in caught.value.advice()


def test_the_form_in_which_orchestrators_mount_secrets_is_read(folder):
    (folder.root / "acme" / "..2026_01").mkdir(parents=True)
    real = folder.root / "acme" / "..2026_01" / "api-key"
    real.write_text(SECRET)
    real.chmod(0o400)
    (folder.root / "acme" / "..data").symlink_to("..2026_01")
    (folder.root / "acme" / "api-key").symlink_to("..data/api-key")
    assert store(folder)("sbx", "api-key") == SECRET
    assert list(list_secrets(folder.root)) == [("acme", "api-key", "")]


@pytest.mark.parametrize("target", ["../other/key", "/etc/hostname"])
def test_a_link_that_leads_out_of_the_tenants_folder_is_refused(folder, target):
    folder(tenant="other", name="key")
    (folder.root / "acme").mkdir()
    (folder.root / "acme" / "api-key").symlink_to(target)
    with pytest.raises(SecretUnusable, match="points outside"):
        store(folder)("sbx", "api-key")


@pytest.mark.parametrize("content", [b"\xff" + SECRET.encode(), ("é" + SECRET).encode(), b"x" * (MAX_BYTES + 1)])
def test_what_is_no_short_text_is_refused_and_not_shown(folder, content):
    folder(content)
    with pytest.raises(SecretUnusable) as caught:
        store(folder)("sbx", "api-key")
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.details}"


def test_a_pipe_is_refused_and_not_waited_for(folder):
    (folder.root / "acme").mkdir()
    os.mkfifo(folder.root / "acme" / "api-key", 0o600)
    with pytest.raises(SecretUnusable, match="not a regular file"):
        store(folder)("sbx", "api-key")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(folder):
    os.chown(folder(), 54_321, 54_321)
    with pytest.raises(SecretUnusable, match="another user"):
        store(folder)("sbx", "api-key")


def test_doctor_counts_secrets_and_refuses_wrong_modes_without_a_value(folder):
    assert doctor.secrets(folder.root / "none").status is Status.INFO
    folder(tenant=TENANT)
    folder.root.chmod(0o700)
    good = doctor.secrets(folder.root)
    assert (good.status, "1 of 1 tenants" in good.detail) == (Status.OK, True)
    folder(tenant=TENANT, name="open", mode=0o644)
    bad = doctor.secrets(folder.root)
    assert (bad.status, f"{TENANT}/open" in bad.detail, "mode 0644" in bad.detail) == (Status.FAIL, True, True)
    assert SECRET not in repr((good, bad))
    folder(tenant=TENANT, name="open", mode=0o600)
    folder.root.chmod(0o777)
    assert doctor.secrets(folder.root).status is Status.FAIL


def test_doctor_names_a_folder_that_is_called_by_a_tenants_name_and_so_is_never_read(folder):
    folder(tenant="acme")
    folder.root.chmod(0o700)
    found = doctor.secrets(folder.root)
    assert (found.status, "acme" in found.detail, "tenants list" in found.fix) == (Status.WARN, True, True)
