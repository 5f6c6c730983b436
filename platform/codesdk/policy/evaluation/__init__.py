"""Decides calls: the decision, merged approval requirements, tool access, queries and comparisons."""
