"""The options of the second engine, for gVisor."""

from __future__ import annotations

import json

import pytest

import gvisor
from codesdk.provision.engines.dockerd import DockerdPaths


def test_it_shares_no_place_with_the_machines_engine(tmp_path):
    places, standard = gvisor.managed_gvisor_engine(tmp_path).places, DockerdPaths(tmp_path)
    assert places.data_root is not None
    assert {places.socket, places.pid_file, places.exec_root} & {
        standard.socket,
        standard.pid_file,
        standard.exec_root,
    } == set()
    assert places.argv()[:3] == ["unshare", "--net", "dockerd"]


def test_its_configuration_knows_runsc_and_touches_no_network(tmp_path):
    found = json.loads(json.dumps(gvisor.configuration("/usr/bin/runsc")))
    assert found["runtimes"] == {
        "runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--platform=ptrace", "--network=none"]}
    }
    assert (found["bridge"], found["iptables"], found["ip6tables"]) == ("none", False, False)


def test_without_root_it_says_what_to_do_instead(tmp_path, monkeypatch):
    monkeypatch.setattr(gvisor, "root", lambda: None)
    with pytest.raises(gvisor.GvisorMissing) as missing:
        gvisor.ensure(lambda _: None, managed=gvisor.managed_gvisor_engine(tmp_path))
    assert "use-gvisor.md" in missing.value.advice()
