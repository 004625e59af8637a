"""The command line. Only here (and in `render.py` and `progress.py`) is a terminal known."""
