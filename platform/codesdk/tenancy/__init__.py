"""Tenants, principals, API keys and session tokens: who is calling, and for whom."""
