"""What an operator's monitoring asks of an installation: figures from the database, in Prometheus' text format."""

from codesdk.metrics.exporter import MetricsExporter

__all__ = ["MetricsExporter"]
