"""Stdio bridge."""
