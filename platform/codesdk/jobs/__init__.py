"""Wake-ups over RQ: "look at your host's rows". What is to be done is in the database, never in the message."""

from codesdk.jobs.wakeups import LocalWakeups, QueueUnavailable, RqWakeups, Wakeups, queue_name, subject_of_job

__all__ = ["LocalWakeups", "QueueUnavailable", "RqWakeups", "Wakeups", "queue_name", "subject_of_job"]
