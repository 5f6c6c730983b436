"""Builds the runner into one command line."""
