"""Servers that several CodeSDK processes share."""
