"""Text in: corpora, evaluation sets, the demo and what is fetched."""
