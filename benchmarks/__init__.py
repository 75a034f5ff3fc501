"""Measurements of hivemind_c against others, always as a ratio within one run: `python -m benchmarks --list`. Read README.md here."""
