"""The Docker driver: containers, volumes, loop disks and attestation. The only package that talks to an engine."""
