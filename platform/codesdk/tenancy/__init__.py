"""Tenants, principals, API keys, session tokens, logins and quotas; who may do what."""
