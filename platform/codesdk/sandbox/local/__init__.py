"""The local driver: sandboxes as processes of this machine, for machines without a container engine.

Weaker than a container and off by default; every attestation lists what isn't enforced.

Reading order: confinement (what this machine supports), bwrap (the confining command line), seccomp (denied system
calls), launch (from a spec to what is started), shim (outlives the worker, holds the runner's pipes and listens for
workers), shim_stream (the worker's end), processes (living processes), state_directory (files), attest (checks), driver
(the port).
"""
