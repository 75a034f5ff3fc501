"""Is this what is to be published? scripts/release.py FOLDER REF checks the wheels and the sdist in FOLDER against the tag REF.

All have the version of csrc/include/hivemind_c.h, REF is its tag (refs/tags/v1.2.3), CHANGELOG.md has a dated section for it, and there
are a wheel for x86-64, one for aarch64, and an sdist.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WANTED = r"hivemind_c-{}-cp310-abi3-manylinux\S*_x86_64\.whl", r"hivemind_c-{}-cp310-abi3-manylinux\S*_aarch64\.whl", r"hivemind_c-{}\.tar\.gz"


def complaints(names, ref, version, changelog):
    """The errors, a sentence each."""
    patterns = [wanted.format(re.escape(version)) for wanted in WANTED]
    if ref != f"refs/tags/v{version}":
        yield f"the ref {ref} is not the tag of version {version}; run this on refs/tags/v{version}, or correct HV_VERSION_TEXT"
    if not re.search(rf"(?m)^## \[?{re.escape(version)}\]? - \d{{4}}-\d\d-\d\d$", changelog):
        yield f"CHANGELOG.md has no section '## {version} - YYYY-MM-DD'; rename 'Unreleased'"
    if re.search(r"(?ms)^## Unreleased\n(?:(?!^## ).)*^- ", changelog):
        yield "CHANGELOG.md has changes under 'Unreleased'; move them to the section of this version"
    for pattern in patterns:
        found = [name for name in names if re.fullmatch(pattern, name)]
        if len(found) != 1:
            yield f"{len(found)} files match {pattern}; there must be one"
    for name in names:
        if not any(re.fullmatch(pattern, name) for pattern in patterns):
            yield f"{name} is no file of this release; remove it"


def main(folder, ref):
    version = re.search(r'HV_VERSION_TEXT "([^"]+)"', (ROOT / "csrc/include/hivemind_c.h").read_text())[1]
    found = list(complaints(sorted(path.name for path in pathlib.Path(folder).iterdir()), ref, version, (ROOT / "CHANGELOG.md").read_text()))
    for complaint in found:
        print(f"release: cannot publish {version}: {complaint}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
