"""The page docs/reference/c-api.md, made from csrc/include/hivemind_c.h: scripts/c_api.py writes it.

A comment and the declarations that follow it without an empty line are one entry, named by its first function or type.
"""

from __future__ import annotations

import pathlib
import re
from typing import Iterator, List, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER, PAGE = ROOT / "csrc/include/hivemind_c.h", ROOT / "docs/reference/c-api.md"
END = re.compile(r"""(?<=[\w)`'"]\.) (?=[A-Z`'"(]|fork|hv_)""")
NAME = re.compile(r"\b(hv_\w+)\(|^typedef struct (\w+)|^} (\w+);", re.M)
HEAD = """# The C API

For programmers who use hivemind_c from C: every type and function of `hivemind_c.h`.
`scripts/c_api.py` makes this page from the header, and a test compares them.

"""


class Entry(NamedTuple):
    name: str
    words: List[str]  # sentences
    code: str


def sentences(comment: str) -> List[str]:
    """The sentences of a comment, without the stars at the beginnings of its lines."""
    text = re.sub(r"\s*\n \* ?", " ", comment).strip()
    return END.split(text)


def entries(header: str) -> Iterator[Entry]:
    body = header[header.index("typedef struct hv_hive hv_hive;") :].split("\n#endif")[0]
    comment, code, inside, above = "", "", False, ""
    for line in body.splitlines():
        if not code and (comment.count("/*") > comment.count("*/") or line.startswith("/*")):
            comment = f"{comment}\n{line}" if comment.count("/*") > comment.count("*/") else line
            continue
        if not line and not inside:
            comment = above = ""
            continue
        code += line + "\n"
        inside = code.count("{") > code.count("}") or not line.endswith((";", "}"))
        if not inside:
            found = next(filter(None, NAME.search(code).groups())) if NAME.search(code) else ""
            if found:
                words = sentences(comment[2:-2].strip()) if comment else [f"See {above}."] if above else []
                yield Entry(found, words, code.rstrip())
            comment, code, above = "", "", found


def introduction(header: str) -> List[str]:
    """The sentences of the header's own comment, without its first line."""
    comment = header[2 : header.index("*/")]
    return sentences(comment.split("\n *\n", 1)[1].removeprefix(" * "))


def escaped(sentence: str) -> str:
    plain = sentence.replace("*", "\\*").replace("<", "&lt;")
    return re.sub(r"(?<![`\w])([A-Z]+_[A-Z_]+|hv_\w+)(?![`\w])", r"`\1`", plain)


def page(header: str) -> str:
    out = [HEAD + "\n".join(map(escaped, introduction(header))) + "\n"]
    for one in entries(header):
        words = "".join(escaped(sentence) + "\n" for sentence in one.words)
        out.append(f"## {one.name}\n\n{words}\n```text\n{one.code}\n```\n".replace("\n\n\n", "\n\n"))
    return "\n".join(out)


if __name__ == "__main__":
    PAGE.write_text(page(HEADER.read_text()))
