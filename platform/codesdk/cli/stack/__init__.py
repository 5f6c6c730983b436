"""What `up` and `demo` run: the machine's part (engine, Redis, image) and our processes, started and stopped as one."""
