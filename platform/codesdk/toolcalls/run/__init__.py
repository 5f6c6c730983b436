"""One run of a call: its sandbox, its limits and secrets, its output, and how its faults become results."""
