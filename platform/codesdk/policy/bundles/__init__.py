"""Bundles."""
