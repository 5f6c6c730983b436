"""Metrics of an installation for Prometheus, read from the database."""

from codesdk.metrics.exporter import MetricsExporter

__all__ = ["MetricsExporter"]
