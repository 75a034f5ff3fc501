"""The plots of the rows in docs/; needs matplotlib, which nothing else here does."""
