"""Loads bundles, and merges the shared, tenant and session layers."""
