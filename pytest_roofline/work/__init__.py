"""Where the bytes and FLOPs of a test come from."""
