"""Asks the session's user for an approval through the agent's client."""
