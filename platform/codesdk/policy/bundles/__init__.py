"""Bundles: loading files, and merging shared, tenant and session layers."""
