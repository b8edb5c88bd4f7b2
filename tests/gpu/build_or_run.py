"""The command of a script that builds on one machine and runs on another: `build OUT [--arch ARCH]`, `run OUT`."""

import argparse
from collections.abc import Callable
from pathlib import Path


def build_or_run(doc: str | None, build: Callable[[Path, str], None], run: Callable[[Path], int]) -> int:
    """What the command line asks for, and the exit status."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("what", choices=["build", "run"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    args = parser.parse_args()
    if args.what == "run":
        return run(args.out)
    args.out.mkdir(parents=True, exist_ok=True)
    build(args.out, args.arch)
    return 0
