"""Hostnames, addresses and resolution for egress and outgoing requests."""
