"""From a model's config.json to the shapes of a kernel (stage A)."""
