"""Packaging."""
