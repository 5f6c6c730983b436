"""Elicitation."""
