"""Mutated programs through the whole front: a text gives kernels or diagnostics, nothing else, and soon.

    python tests/properties/mutations.py FIRST COUNT

prints counts, every text that raised anything but a TExprError, and every one that took over a second.
"""

import argparse
import collections
import random
import re
import sys
import time
import traceback
from pathlib import Path

import texpr

ROOT = Path(__file__).resolve().parents[2]
TOKENS = """
par seq new shared reg global let if else anchor atomic kernel fn in out inout sum prod maximum minimum size where fully
import return reference asm select and or not inf nan true false { } ( ) [ ] , ; : = += -= *= max= min= == != <= >= < >
+ - * / % # .. | -- i j k N M A B C f32 f16 bf16 f8e4m3 i8 u32 i64 bool 0 1 2 16 3.5 1e-3 0x1f 99999999999999999999 exp
ceildiv fma #tile(8) #ordered #block #strides(1,N) #layout(col) "asm" \u00e9 \u202e \x00
""".split()  # noqa: SIM905 -- a list of ninety quoted words reads worse
CORPUS = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / "kernels").rglob("*.tex"))]
CORPUS += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "grammar" / "std").glob("*.tex"))]


def mutated(seed: int) -> str:
    """A program with a few tokens or characters changed, moved, doubled or taken from another program."""
    rng = random.Random(seed)
    text = rng.choice(CORPUS)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at, length = rng.randrange(len(text) + 1), rng.choice((0, 1, 1, 2, 5, 20))
        match rng.randrange(11):
            case 0:
                piece = f" {rng.choice(TOKENS)} "
            case 1:
                piece = ""
            case 2:
                other = rng.choice(CORPUS)
                start = rng.randrange(len(other))
                piece = other[start : start + rng.choice((1, 5, 20, 100))]
            case 3:
                piece = text[at : at + length] * rng.choice((2, 3, 50))
            case 4:
                piece = chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x500))))
            case 5:
                piece = rng.choice("([{+-*/#") * rng.choice((1, 3, 200))
            case 6 | 7 | 8:  # a name or number for another one: the grammar still holds
                found = list(re.finditer(r"\b[A-Za-z_]\w*|\b\d+\b", text))
                spot, other = rng.choice(found), rng.choice(found)
                text = text[: spot.start()] + other[0] + text[spot.end() :]
                at, piece, length = 0, "", 0
            case 9:  # an operator for another one
                found = list(re.finditer(r"[-+*/%]|[<>=!]=|[<>]", text))
                spot = rng.choice(found) if found else None
                if spot is not None:
                    text = text[: spot.start()] + rng.choice(("+", "-", "*", "/", "%", "<", "==")) + text[spot.end() :]
                at, piece, length = 0, "", 0
            case _:
                words = text.split(" ")
                i, j = rng.randrange(len(words)), rng.randrange(len(words))
                words[i], words[j] = words[j], words[i]
                text, piece, length = " ".join(words), "", 0
        text = text[:at] + piece + text[at + length :]
    return text


def outcome(text: str) -> str:
    """`accepted`, or the least code of the refusal; any other exception is let through."""
    try:
        for kernel in texpr.parse(text, "mutated.tex"):
            kernel.compile("cpu", stop_after="prove")
    except texpr.TExprError as wrong:
        assert wrong.diagnostics
        return min(d.code for d in wrong.diagnostics)
    return "accepted"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(options.first, options.first + options.count):
        text = mutated(seed)
        start = time.process_time()
        try:
            counts[outcome(text)] += 1
        except Exception:  # a defect of ours: what this script looks for
            counts["TRACEBACK"] += 1
            if counts["TRACEBACK"] <= 5:
                print(f"seed {seed}:\n{text}\n{traceback.format_exc()[-1200:]}\n")
        if time.process_time() - start > 1.0:
            counts["SLOW"] += 1
            print(f"seed {seed} took {time.process_time() - start:.1f} s", flush=True)
    print(dict(sorted(counts.items())))
    sys.exit(bool(counts["TRACEBACK"] or counts["SLOW"]))


if __name__ == "__main__":
    main()
