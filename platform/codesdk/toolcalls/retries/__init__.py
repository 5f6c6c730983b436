"""Retries."""
