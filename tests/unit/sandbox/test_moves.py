"""Moves in the runner, with the kernel's atomic rename and on file systems without it."""

from __future__ import annotations

import errno
import os

import pytest

from codesdk.sandbox.runner import kernel
from codesdk.sandbox.runner.workspace import directory_operations
from codesdk.sandbox.runner.workspace.root import OperationRefused, Root


@pytest.fixture(params=["one step", "ENOSYS", "EINVAL"])
def root(request, tmp_path, monkeypatch):
    if request.param != "one step":

        def lacking(*_arguments):
            raise OSError(getattr(errno, request.param), "not here")

        monkeypatch.setattr(kernel, "rename_new", lacking)
    made = Root(str(tmp_path))
    yield made
    os.close(made.fd)


def test_a_new_name_that_is_taken_stays_what_it_is(root, tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    (tmp_path / "link").symlink_to("nowhere")
    for taken in ("b", "link"):
        with pytest.raises(OperationRefused) as refused:
            directory_operations.move(root, "a", taken, replace=False)
        assert refused.value.error == "CONFLICT"
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("a", "b")
    assert directory_operations.move(root, "a", "c", replace=False)["path"] == "c"
    assert directory_operations.move(root, "c", "b", replace=True)["size"] == 1
    assert (tmp_path / "b").read_text() == "a"


def test_a_directory_that_a_link_puts_into_itself_is_refused(root, tmp_path):
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "way").symlink_to("d")
    with pytest.raises((OperationRefused, OSError)) as refused:
        directory_operations.move(root, "d", "way/sub/d", replace=False)
    assert getattr(refused.value, "errno", errno.EINVAL) == errno.EINVAL
    assert (tmp_path / "d" / "sub").is_dir()
