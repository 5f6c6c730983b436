"""Deferred approvals."""
