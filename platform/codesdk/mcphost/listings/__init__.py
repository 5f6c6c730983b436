"""Listings."""
