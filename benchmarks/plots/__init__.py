"""What docs/ shows of the rows, drawn; needs matplotlib, which nothing else here does."""
