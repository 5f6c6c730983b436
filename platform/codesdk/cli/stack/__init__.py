"""The stack of `up` and `demo`: engine, Redis, image, API and worker, started and stopped together."""
