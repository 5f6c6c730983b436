from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.network.addresses import public_only
from codesdk.domain.network.resolver import is_local_address, public_and_remote
from receivers import public_or_listed


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254",
        "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
        "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16",
        "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:169.254.169.254", "::ffff:0:8.8.8.8",
        "64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::a00:1", "64:ff9b:1::8.8.8.8", "100::1", "fc00::1",
        "fd00:ec2::254", "fe80::1", "fe80::1%1", "fec0::1", "ff02::1", "2001::1", "2001:0:4136:e378::", "2001:2::1", "2001:10::1",
        "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1", "4000::1", "5f00::1", "2600::5efe:10.0.0.1",
        "2600::200:5efe:8.8.8.8",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused(text):
    assert public_only(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "text", ["1.1.1.1", "8.8.8.8", "151.101.0.223", "2606:4700::1111", "2a04:4e42::223", "64:ff9b::808:808"]
)
def test_a_public_address_is_allowed(text):
    assert public_only(ipaddress.ip_address(text)) is None


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_nothing_that_the_standard_library_calls_private_is_allowed(address):
    if public_only(address) is None and address not in ipaddress.ip_network("64:ff9b::/96"):
        assert address.is_global
        assert not any((address.is_private, address.is_loopback, address.is_link_local, address.is_multicast))


@given(st.ip_addresses(v=4))
def test_an_embedded_address_is_never_looser_than_itself(address):
    number = int(address)
    embedded = [number, 0xFFFF << 32 | number, (0x64FF9B << 96) | number, (0x2002 << 112) | number << 80]
    for value in embedded:
        if public_only(ipaddress.IPv6Address(value)) is None:
            assert public_only(address) is None


def test_the_test_policy_allows_what_it_lists_and_no_neighbour():
    policy = public_or_listed([ipaddress.ip_address("127.0.0.1")])
    assert policy(ipaddress.ip_address("127.0.0.1")) is None
    assert policy(ipaddress.ip_address("127.0.0.2"))
    assert policy(ipaddress.ip_address("169.254.169.254"))


def test_an_address_of_this_machine_is_recognised():
    assert is_local_address(ipaddress.ip_address("127.0.0.1"))
    assert not is_local_address(ipaddress.ip_address("192.0.2.1"))


def test_a_worker_refuses_loopback_whatever_a_test_allows():
    assert public_and_remote(ipaddress.ip_address("127.0.0.1"))
