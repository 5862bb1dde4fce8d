"""The worker: claims what is due and runs handlers on lanes."""
