"""Bytes and FLOPs of a call that nobody annotated, from watching it run once."""
