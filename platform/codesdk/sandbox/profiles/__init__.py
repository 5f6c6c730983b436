"""Sandbox profiles: the limits of one kind of sandbox, and how they are loaded from files."""
