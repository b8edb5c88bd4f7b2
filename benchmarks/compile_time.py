"""How long compilation takes: every stage, and whole commands with their start-up, in CPU time.

    python benchmarks/compile_time.py [--repeat 5] [--against COMMIT] [--peer PYTHON]

Prints milliseconds per stage (best of N, in one warm process) for several kernels, then seconds (user + system,
children included, best of N) of whole commands. With `--against`, this tree and that of COMMIT take turns on the same
kernels, and behind each row stands a row of how many times as long as COMMIT this tree takes.

Then the time from text to plan of all test kernels of at most 4 par dims and 8 accesses, the longest first, and that
from text to cubin beside Triton's (`compile_cubins.py`, whose peer `--peer` names). Nothing comes from the cache but
where a row says so.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KERNELS = {
    "vector_add": {"N": 1 << 20},
    "matmul_seed": {"M": 512, "N": 512, "K": 512},
    "matmul_tiled": {"M": 512, "N": 512, "K": 512},
    "softmax": {"M": 512, "N": 4096},
    "attention_tile": {"M": 64, "N": 256, "D": 64},
    "conv2d": {"B": 2, "C": 3, "K": 4, "H": 16, "V": 16},
}
TARGETS = ("cuda:sm_90a", "cpu")
Times = dict[str, float]


def serve() -> None:
    """Answer each line `[path, sizes, target]` by the CPU time of the stages, compiled by the tree of PYTHONPATH."""
    time.perf_counter = time.process_time
    import texpr

    for line in sys.stdin:
        path, sizes, target = json.loads(line)
        print(json.dumps(texpr.load(path).only.compile(target, sizes=sizes).build.times_ms), flush=True)


class Tree:
    """One version of the compiler, and the process that compiles with it."""

    def __init__(self, root: Path, out: str) -> None:
        self.root, self.out = root, out
        own = {"PYTHONPATH": str(root), "PYTHONPYCACHEPREFIX": f"{out}/bytecode", "TEXPR_CACHE_DIR": "off"}
        self.environment = {**os.environ, **own}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: modules are compiled once
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, cwd=root, env=self.environment, bufsize=1
        )

    def stages(self, name: str, target: str) -> Times:
        """Milliseconds of each stage of one compilation."""
        assert self.process.stdin is not None and self.process.stdout is not None
        path = ROOT / "tests" / "kernels" / f"{name}.tex"
        self.process.stdin.write(json.dumps([str(path), KERNELS[name], target]) + "\n")
        times: Times = json.loads(self.process.stdout.readline())
        return {**times, "sum": sum(times.values())}

    def command(self, arguments: Sequence[str]) -> Times:
        """User and system seconds of a command and its children; OUT is a folder of this tree's own."""
        made = f"{self.out}/made"
        command = [sys.executable, "-m", "texpr", *(made if argument == "OUT" else argument for argument in arguments)]
        before = os.times()
        subprocess.run(command, check=True, capture_output=True, cwd=self.root, env=self.environment)
        after = os.times()
        return {"s": after.children_user + after.children_system - before.children_user - before.children_system}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def least(one: Times, other: Times) -> Times:
    return {key: min(value, other.get(key, value)) for key, value in one.items()}


def two_hundred_lines(folder: Path) -> Path:
    """A file of 200 lines made of the test kernels."""
    lines: list[str] = []
    for path in sorted((ROOT / "tests" / "kernels").glob("*.tex")):
        text = path.read_text(encoding="utf-8")
        if "kernel " in text and len(lines) + text.count("\n") <= 200:
            lines += text.splitlines()
    target = folder / "two_hundred.tex"
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def measure(trees: Sequence[Tree], repeat: int, folder: Path) -> None:
    """Print the tables; the last tree is that whose times are shown, the first is what it is compared with."""
    for target in TARGETS:
        best: dict[str, list[Times]] = {name: [{} for _ in trees] for name in KERNELS}
        for _ in range(repeat):
            for name in KERNELS:
                best[name] = [
                    least(t.stages(name, target), so_far) for t, so_far in zip(trees, best[name], strict=True)
                ]
        stages = list(best["vector_add"][-1])
        print(f"{target:<16}" + "".join(f"{stage:>9}" for stage in stages) + "  (ms)")
        for name, (*others, own) in best.items():
            print(f"{name:<16}" + "".join(f"{own[stage]:9.1f}" for stage in stages))
            for other in others:
                ratios = (f"{own[stage] / other[stage]:8.2f}x" if stage in other else f"{'new':>9}" for stage in stages)
                print(f"{'':<16}" + "".join(ratios), flush=True)
    file, seed = two_hundred_lines(folder), ROOT / "tests" / "kernels" / "matmul_seed.tex"
    sizes = ["-D", "M=512", "-D", "N=512", "-D", "K=512"]
    commands = {
        f"check, {file.read_text(encoding='utf-8').count(chr(10))} lines": ["check", str(file)],
        "build --source-only, seed matmul": ["build", str(seed), *sizes, "--source-only", "-o", "OUT"],
        "version": ["version"],
    }
    for label, arguments in commands.items():
        seconds: list[Times] = [{} for _ in trees]
        for _ in range(repeat):
            seconds = [least(t.command(arguments), so_far) for t, so_far in zip(trees, seconds, strict=True)]
        ratios = "".join(f", {seconds[-1]['s'] / other['s']:.2f}x" for other in seconds[:-1])
        print(f"texpr {label:<34} {seconds[-1]['s']:.2f} s user + system, best of {repeat}{ratios}", flush=True)


MOST_PARS, MOST_ACCESSES, PLANS_SHOWN, PLAN_AIM_MS, SEED_AIM_MS = 4, 8, 5, 500, 50
SEED = "matmul_seed"


def is_small(kernel: Any) -> bool:
    """Whether a checked kernel has few par dims and few accesses."""
    from texpr.grammar.ast import Accumulate, Bind, Par, Read
    from texpr.grammar.walk import walk

    nodes = [node for stmt in kernel.body for node in walk(stmt)]
    pars = sum(isinstance(node, Par) for node in nodes)
    return pars <= MOST_PARS and sum(isinstance(node, Read | Bind | Accumulate) for node in nodes) <= MOST_ACCESSES


def plan_times(repeat: int) -> None:
    """Print which small test kernels take longest from text to plan, in this process, and what the seed's takes."""
    import texpr

    cases = tomllib.loads((ROOT / "tests" / "kernels" / "cases.toml").read_text(encoding="utf-8"))
    cases[SEED]["sizes"] = [{"M": 4096, "N": 4096, "K": 4096}]
    best: dict[str, float] = {}
    for name, case in cases.items():
        text = (ROOT / "tests" / "kernels" / f"{name}.tex").read_text(encoding="utf-8")
        if not is_small(texpr.parse(text, name).only.core(sizes=case["sizes"][0])):
            continue
        free = case.get("dynamic", ())
        for sizes in ({**case["sizes"][0]}, {key: n for key, n in case["sizes"][0].items() if key not in free}):
            for _ in range(repeat):
                begun = time.process_time()
                texpr.parse(text, name).only.compile("cuda:sm_90a", sizes=sizes, stop_after="plan")
                took = 1e3 * (time.process_time() - begun)
                which = name if len(sizes) == len(case["sizes"][0]) else f"{name}, free sizes"
                best[which] = min(took, best.get(which, took))
    worst = sorted(best.items(), key=lambda item: -item[1])[:PLANS_SHOWN]
    print(f"text to plan of {len(best)} small kernels, ms (aimed at {PLAN_AIM_MS}):")
    print("    " + ", ".join(f"{name} {took:.0f}" for name, took in worst))
    print(f"    the seed's matmul of 4096 x 4096 x 4096 {best[SEED]:.0f} (aimed at {SEED_AIM_MS})", flush=True)


def main() -> None:
    if sys.argv[1:] == ["--serve"]:
        serve()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--against", metavar="COMMIT", help="compare with the tree of a commit")
    parser.add_argument("--peer", metavar="PYTHON", help="the interpreter of an environment with Triton")
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "properties")]
    from compile_cubins import CASES, table
    from same_text import unpacked

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        roots = [] if options.against is None else [unpacked(options.against, folder / "base")]
        trees = [Tree(root, tempfile.mkdtemp(dir=folder)) for root in (*roots, ROOT)]
        try:
            measure(trees, options.repeat, folder)
        finally:
            for tree in trees:
                tree.close()
    plan_times(options.repeat)
    table(list(CASES), options.repeat, options.peer)


if __name__ == "__main__":
    main()
