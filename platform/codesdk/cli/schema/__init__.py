"""Generates the JSON Schema and the event reference from the models."""
