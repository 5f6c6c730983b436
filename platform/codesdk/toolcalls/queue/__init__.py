"""The fair queue: which tenant's call a host starts next, and how many of a session may run."""
