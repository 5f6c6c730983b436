"""Egress."""
