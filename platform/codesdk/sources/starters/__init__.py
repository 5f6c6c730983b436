"""Starters."""
