"""What an operator's monitoring asks of an installation: figures from the database, in Prometheus' text format."""

from codesdk.metrics.figures import Figures

__all__ = ["Figures"]
