"""The worker's side of the runner protocol, shared by the Docker and the local driver."""
