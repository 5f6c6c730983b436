"""Host and Origin headers that the service accepts."""

from __future__ import annotations

import pytest

from codesdk.api.origins import _host_header, _origin_host, host_names


def named(*values):
    return _host_header({"headers": [(b"host", value) for value in values]})


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (b"127.0.0.1:8765", "127.0.0.1"),
        (b"LOCALHOST", "localhost"),
        (b"[::1]:80", "[::1]"),
        (b"[::1]", "[::1]"),
        (b"localhost:80:80", "localhost:80"),
        (b"localhost:", "localhost:"),
        (b"localhost:x", "localhost:x"),
    ],
)
def test_the_port_is_left_out_of_a_host_header(header, name):
    assert named(header) == name


def test_two_host_headers_or_none_name_nothing():
    assert (named(), named(b"localhost", b"localhost")) == ("", "")


def test_the_service_goes_by_loopback_its_own_address_and_what_is_added():
    assert host_names("10.0.0.1", ["api"]) == ("127.0.0.1", "localhost", "[::1]", "10.0.0.1", "api")
    assert host_names("fe80::1")[-1] == "[fe80::1]"
    assert host_names("127.0.0.1") == ("127.0.0.1", "localhost", "[::1]")


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ("http://api", "api"),
        ("https://api:8443", "api"),
        ("http://[::1]:80", "[::1]"),
        ("http://api:x", "api:x"),
        ("ftp://api", ""),
        ("null", ""),
        ("", ""),
    ],
)
def test_the_host_of_an_origin_is_named_without_its_port(origin, name):
    assert _origin_host(origin) == name
