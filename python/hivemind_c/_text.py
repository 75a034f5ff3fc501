"""Text of strangers, made fit for a log, a terminal or a page."""


def printable(text: str) -> str:
    """The text with "?" in place of each character that is not printable."""
    return "".join(c if c.isprintable() else "?" for c in text)
