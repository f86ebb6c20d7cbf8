"""Records that other tools write, each format an adapter.

An adapter is a module or object with ``NAME``, ``matches(sample)`` and ``read(source)``; ``pytest_roofline_ingest`` adds more.
"""

from .source import Adapter, RecordRow, RefusedError, Sample, Source

__all__ = ["Adapter", "RecordRow", "RefusedError", "Sample", "Source"]
