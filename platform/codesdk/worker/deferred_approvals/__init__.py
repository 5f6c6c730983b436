"""What the worker prepares before a person is asked: file fingerprints and dry runs."""
