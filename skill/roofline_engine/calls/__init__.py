"""From a call of a framework's operation to the engine's op: one mapping for live tensors and for recorded shapes."""
