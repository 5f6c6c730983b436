"""Matches compiled rules against calls."""
