"""Sandbox images: building, checking, allowing and pruning them."""
