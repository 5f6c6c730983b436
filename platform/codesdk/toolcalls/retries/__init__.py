"""Lost calls: how a lost attempt ends, and when another one follows."""
