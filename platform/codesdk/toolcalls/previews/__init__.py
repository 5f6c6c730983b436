"""Previews (ADR 30): dry runs of calls in a copy of the workspace, and the changes that they show."""
