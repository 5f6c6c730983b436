"""Hosts: engines with their workers. What each offers, who goes where, and who is gone."""

from codesdk.hosts.host import Capacity, HostRecord, HostState, HostUnknown
from codesdk.hosts.service import HostService

__all__ = ["Capacity", "HostRecord", "HostService", "HostState", "HostUnknown"]
