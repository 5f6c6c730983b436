"""Backup and restore of an installation, export and import of session logs, and retention."""
