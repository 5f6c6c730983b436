"""Decides which bundle version is in force: files, pinned versions, session rules and shadow evaluation."""
