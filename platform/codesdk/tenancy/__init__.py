"""Tenants, principals, API keys, session tokens, logins, quotas and authorisation."""
