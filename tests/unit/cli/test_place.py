"""One data directory and one port for one stack."""

from __future__ import annotations

import os
import socket

import pytest

from codesdk.cli.places import settings_of
from codesdk.cli.stack.place import AlreadyUp, PortTaken, check_port, take_data_dir
from codesdk.settings import DataDirUnusable


def test_a_second_holder_of_a_data_directory_is_told_of_the_first(tmp_path):
    settings = settings_of(tmp_path)
    with take_data_dir(settings), pytest.raises(AlreadyUp, match=str(os.getpid())):
        take_data_dir(settings)


def test_a_data_directory_is_free_again_when_its_holder_lets_go(tmp_path):
    settings = settings_of(tmp_path)
    take_data_dir(settings).close()
    take_data_dir(settings).close()


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirUnusable, match=str(tmp_path / "file")):
        take_data_dir(settings_of(tmp_path / "file" / "data"))


def test_a_taken_port_is_named_with_the_way_around_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"127.0.0.1:{port}.*--port"):
            check_port("127.0.0.1", port)


def test_port_zero_is_always_free():
    check_port("127.0.0.1", 0)
