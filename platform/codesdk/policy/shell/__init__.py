"""Parses shell commands for policy: the allow and ask-deny views, command patterns, and unsafe arguments."""
