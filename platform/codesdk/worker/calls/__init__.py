"""How a worker learns of calls, runs them and recovers those an earlier worker left running."""
