"""Builds the book: scripts/book.py [FOLDER]. The pages, and what they link to, are laid out as they lie in the repository; a dead link is an error."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import messages

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md", "benchmarks/**/README.md", "examples/**/README.md"
MESSAGES = pathlib.Path("docs/reference/errors-and-logs.md")  # made from the source
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def lay_out(target):
    """Copies the pages and what they link to; returns the pages."""
    shutil.rmtree(target, ignore_errors=True)
    pages = sorted({page.relative_to(ROOT) for pattern in PAGES for page in ROOT.glob(pattern)})
    wanted = set(pages)
    for page in pages:
        for link in LINK.findall((ROOT / page).read_text()):
            linked = (ROOT / page.parent / link).resolve()
            if linked.is_file() and linked.is_relative_to(ROOT):
                wanted.add(linked.relative_to(ROOT))
    for path in wanted:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target / path)
    (target / MESSAGES).write_text(messages.page())
    return [*pages, MESSAGES]


def main():
    site = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "site"
    source = site.with_name(site.name + "-source")
    lay_out(source)
    config = source.with_suffix(".yml")
    text = (ROOT / "mkdocs.yml").read_text()
    config.write_text(re.sub(r"(?m)^docs_dir: .*$", f"docs_dir: {source}", re.sub(r"(?m)^site_dir: .*$", f"site_dir: {site}", text)))
    return build(config)


def build(config):
    """mkdocs's exit code; what it says is shown if something is wrong. Not --quiet: it does not count warnings then."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})  # the theme's own news
    if done.returncode or "WARNING" in done.stderr:
        print(done.stderr, file=sys.stderr)
        return done.returncode or 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
