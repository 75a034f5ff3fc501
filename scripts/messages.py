"""Every error and every warning that the project's C and Python can give, as one page of the book: scripts/messages.py
prints it."""

import ast
import pathlib
import re
from typing import Iterator, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
C_CALL = re.compile(r"\b(hv_fail|hv_fail_by|hv_env_log|hv_log_write)\s*\(")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[(),]|[^"\'(),]+')
LEVELS = {"HV_LOG_WARN": "WARNING", "HV_LOG_ERROR": "ERROR"}
PLACE = re.compile(r"%(?:[-+ #0]*\d*(?:\.\d+|\.\*)?(?:hh|h|ll|l|z|j)?[a-zA-Z]|%)")
HEAD = """# Errors and warnings

For people who have met a message and look for its place, and for programs that distinguish errors.
This page is made from the source: every error, and every line of the log at WARNING and ERROR.
`...` stands for a value.
[When something is wrong](../howto/troubleshoot.md) explains those that are met most.
"""


class Message(NamedTuple):
    kind: str  # a status or an exception's class; a level
    logger: str  # "" for errors
    text: str
    where: str


def arguments(code: str, start: int) -> list[str]:
    """The arguments of the call whose parenthesis opens before `start`."""
    depth, out, at = 0, [""], start
    while at < len(code) and (token := TOKEN.match(code, at)):
        word, at = token.group(), token.end()
        if word == ")" and depth == 0:
            return out
        depth += (word == "(") - (word == ")")
        if word == "," and depth == 0:
            out.append("")
        else:
            out[-1] += word
    return out


def text_of(argument: str) -> str:
    """The text of a string that may have macros in it; "" for an argument that is none."""
    parts = re.findall(r'"(?:\\.|[^"\\\n])*"|\w+', argument)
    if not any(part.startswith('"') for part in parts):
        return ""
    return "".join(part[1:-1] if part.startswith('"') else "..." for part in parts).replace("%...", "...")


def plain(text: str) -> str:
    return (
        re.sub(r"\s+", " ", PLACE.sub(lambda m: "%" if m.group() == "%%" else "...", text)).replace('\\"', '"').strip()
    )


def of_c(path: pathlib.Path) -> Iterator[Message]:
    code = COMMENT.sub(" ", path.read_text())
    where = path.relative_to(ROOT).as_posix()
    for call in C_CALL.finditer(code):
        given = arguments(code, call.end())
        texts = [text_of(one) for one in given]
        if call.group(1).startswith("hv_fail"):
            text = next((text for text in texts if " " in text), "")
            status = next((one.strip() for one in given if re.fullmatch(r"\s*HV_[A-Z_]+\s*", one)), "").removeprefix(
                "HV_"
            )
            if text:
                yield Message(status or "as the cause", "", plain(text), where)
        elif len(given) > 4 and given[1].strip() in LEVELS and texts[4]:
            yield Message(LEVELS[given[1].strip()], f"hivemind_c.{texts[2]}", plain(texts[4]), where)


def template(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return ""


def of_python(path: pathlib.Path) -> Iterator[Message]:
    where = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text())
    named = [
        call
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "getLogger"
    ]
    logger = next((template(call.args[0]) for call in named if call.args), "")
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            text, kind = template(node.exc.args[0]), ast.unparse(node.exc.func).split(".")[-1]
            if " " in text:
                yield Message(kind, "", plain(text), where)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("warning", "error")
            and node.args
        ):
            if ast.unparse(node.func.value) == "logger" and (text := template(node.args[0])):
                yield Message(node.func.attr.upper(), logger, plain(text), where)


def messages() -> list[Message]:
    c = [
        path
        for folder in ("csrc", "cuda")
        for path in sorted((ROOT / folder).rglob("*.c"))
        if "build" not in path.parts
    ]
    found = [message for path in c for message in of_c(path)]
    found += [message for path in sorted((ROOT / "python/hivemind_c").rglob("*.py")) for message in of_python(path)]
    return sorted({one for one in found if re.search("[a-z]", one.text)}, key=lambda one: (one.text.lower(), one.where))


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")


def page() -> str:
    found = messages()
    lines = [HEAD, "## Errors\n", "| message | status or class | from |", "|---|---|---|"]
    lines += [
        f"| {cell(one.text)} | {one.kind} | `{one.where}` |"
        for one in found
        if not one.logger and one.kind not in ("WARNING", "ERROR")
    ]
    lines += ["\n## Lines of the log\n", "| message | level | logger | from |", "|---|---|---|---|"]
    lines += [
        f"| {cell(one.text)} | {one.kind} | {one.logger} | `{one.where}` |"
        for one in found
        if one.kind in ("WARNING", "ERROR")
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
