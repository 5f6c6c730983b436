"""Approval."""
