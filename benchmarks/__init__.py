"""What hivemind_c is measured against, always as a ratio within one run: `python -m benchmarks --list`. Read README.md here."""
