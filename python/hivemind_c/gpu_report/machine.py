"""The machine as one JSON object: GPU, driver, CUDA, torch, Python, CPU, date and commit.

It needs the standard library alone, and names torch and the driver if they are there.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
from typing import Any, Dict, Sequence


def said(*command: str) -> str:
    """The output of a command, or "" if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} threads" if names else platform.processor()


def commit() -> str:
    """The tree's commit, if git knows it."""
    head = said("git", "rev-parse", "HEAD")
    changed = said("git", "status", "--porcelain", "--untracked-files=no")
    return head and head + (", with changes" if changed else "")


def capability() -> str:
    """The first GPU's, as "9.0"; "" if there is none."""
    return (said("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader", "-i", "0").splitlines() or [""])[
        0
    ].strip()


def count() -> int:
    """Number of GPUs that programs see."""
    there = len(said("nvidia-smi", "--query-gpu=index", "--format=csv,noheader").splitlines())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return there if visible is None else min(there, len([one for one in visible.split(",") if one.strip()]))


def facts() -> Dict[str, Any]:
    names = ("GPU", "driver", "GPU memory")
    smi = said("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader", "-i", "0")
    found: Dict[str, Any] = dict(zip(names, map(str.strip, smi.split(",")))) if smi else {}
    found["compute capability"] = capability()
    release = re.search(r"V([\d.]+)", said("nvcc", "--version"))
    found["nvcc"] = release[1] if release else ""
    found["Python"], found["CPU"], found["system"] = platform.python_version(), processor(), platform.platform()
    found["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    found["commit"] = commit()
    try:
        import torch
    except ImportError:
        found["torch"] = "missing"
    else:
        found["torch"], found["CUDA of torch"] = torch.__version__, torch.version.cuda
        if torch.cuda.is_available():
            found["GPU"] = torch.cuda.get_device_name()
    return {name: value for name, value in found.items() if value}


def main(arguments: Sequence[str] = ()) -> None:
    print(json.dumps({"machine": facts()}))


if __name__ == "__main__":
    main()
