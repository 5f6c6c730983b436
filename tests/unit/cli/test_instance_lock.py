"""One data directory and one port for one stack."""

from __future__ import annotations

import os
import socket

import pytest

from codesdk.cli.effective_settings import load_settings
from codesdk.cli.stack.instance_lock import AlreadyUp, PortTaken, check_port, lock_data_dir
from codesdk.settings import DataDirUnusable


def test_a_second_holder_of_a_data_directory_is_told_of_the_first(tmp_path):
    settings = load_settings(tmp_path)
    with lock_data_dir(settings), pytest.raises(AlreadyUp, match=str(os.getpid())):
        lock_data_dir(settings)


def test_a_data_directory_is_free_again_when_its_holder_lets_go(tmp_path):
    settings = load_settings(tmp_path)
    lock_data_dir(settings).close()
    lock_data_dir(settings).close()


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirUnusable, match=str(tmp_path / "file")):
        lock_data_dir(load_settings(tmp_path / "file" / "data"))


def test_a_taken_port_is_named_with_the_way_around_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"127.0.0.1:{port}.*--port"):
            check_port("127.0.0.1", port)


def test_port_zero_is_always_free():
    check_port("127.0.0.1", 0)
