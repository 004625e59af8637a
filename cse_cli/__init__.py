"""Contrastive sentence embeddings: train, judge and probe sentence encoders."""

__version__ = "0.1.0"
