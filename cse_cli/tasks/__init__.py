"""What is measured of an encoder: each task takes `encode` and returns a Table."""
