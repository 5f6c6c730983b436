"""The only wiring: settings in, a closeable container of services out."""

from codesdk.bootstrap.services import Services, open_services

__all__ = ["Services", "open_services"]
