"""The only wiring: settings in, a closeable container of services out."""

from codesdk.bootstrap.services import Services

__all__ = ["Services"]
