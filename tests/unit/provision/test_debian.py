from __future__ import annotations

from codesdk.provision.system.debian import Release, parse_os_release, release


def test_ubuntu_and_what_is_made_from_debian_have_apt():
    assert parse_os_release('ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME="noble"\n') == Release(
        "ubuntu", ("debian",), "noble"
    )
    assert parse_os_release('ID=linuxmint\nID_LIKE="ubuntu debian"\n').has_apt
    assert not parse_os_release("ID=fedora\nID_LIKE='rhel centos'\n").has_apt


def test_a_broken_line_is_no_reason_to_stop():
    assert parse_os_release('NAME="unclosed\nID=debian\n').id == "debian"


def test_a_machine_without_os_release_has_no_apt(tmp_path):
    assert not release(tmp_path / "os-release").has_apt
