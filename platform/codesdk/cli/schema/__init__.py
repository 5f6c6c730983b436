"""The contracts for readers in other languages: JSON Schema and the reference page of events, both from the models."""
