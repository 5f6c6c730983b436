"""The worker process: wiring, periodic tasks, watchdog, privilege drop and shutdown."""
