"""Decides calls, and counts them under the rates and limits that rules and settings set."""
