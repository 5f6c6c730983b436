"""Hosts: engines with their workers. Capacity, placement of sessions, and detection of lost hosts."""

from codesdk.hosts.host import Capacity, HostRecord, HostState, HostUnknown
from codesdk.hosts.service import HostService

__all__ = ["Capacity", "HostRecord", "HostService", "HostState", "HostUnknown"]
