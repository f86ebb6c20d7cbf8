"""Capture of PyTorch calls."""
