"""What makes the built-in demo: a grammar, a graded similarity set and a small 12-layer BERT."""
