"""Hardware counters: read a profiler's file, and let the counts take the place of the model (stage C)."""
