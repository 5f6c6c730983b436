"""Isolation."""
