"""PostgreSQL and Redis servers that several processes share."""
