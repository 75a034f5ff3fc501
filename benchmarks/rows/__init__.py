"""One row, one file: see benchmarks/frame.py for what a row is made of."""
