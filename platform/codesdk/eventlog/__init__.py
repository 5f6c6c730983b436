"""The append-only log of each session: append in a unit of work, read after a cursor, follow as it grows."""
