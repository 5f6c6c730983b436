"""What outlives an installation: backups and restored copies, exported logs, and what is kept for how long."""
