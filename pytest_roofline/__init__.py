"""Roofline headroom for GPU kernels: the ``roofline`` command around the engine in ``roofline_engine``."""
