"""The local driver: the runner as processes of this machine, for machines where no container engine can run.

Weaker than a container, off unless the operator turns it on, and it says in every attestation what it does not enforce.

Reading order: confinement (what this machine can do), bwrap (the command line that confines), seccomp (the system calls
that are refused), launch (what to start, from a spec), porter (a process that outlives the worker, holds the runner's
pipes and listens for workers), transport (the worker's end of that), processes (who still lives), places (where things
lie), attest (what is compared and told), driver (the port).
"""
