"""Counts of denials, and histograms of how long calls were queued, ran and waited for people."""
