"""Hosts: engines with their workers. What each offers, who goes where, and who is gone."""

from codesdk.hosts.desk import Hosts
from codesdk.hosts.host import Capacity, HostRecord, HostState, HostUnknown

__all__ = ["Capacity", "HostRecord", "HostState", "HostUnknown", "Hosts"]
