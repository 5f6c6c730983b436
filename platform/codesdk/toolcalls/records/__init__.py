"""Recorded calls: their model, their SQL, their events, and their use as policy inputs."""
