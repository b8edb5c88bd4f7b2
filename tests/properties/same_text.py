"""What two versions of the compiler say about the same programs: emitted text, manifests, mappings, graphs, refusals.

    python tests/properties/same_text.py BASE [--soup 200] [--random 200] [--save FILE] [--only PART]

takes this tree's programs (`tests/kernels`, refused ones included, `tests/polyhedral/programs`, `tests/errors`, the
examples, and so many generated ones of each kind) through every stage, for every kind of target, with sizes bound and
free, under this tree and under BASE, and prints what differs. BASE is a commit, or a file that an earlier run wrote
with `--save`. The exit status is 1 where something differs.
"""

import argparse
import difflib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("cpu", "cuda:sm_80", "cuda:sm_90a", "cuda-host:sm_90a")
SHOWN = 12  # lines of one difference
Job = dict[str, Any]
Said = dict[str, str]


def jobs(soup: int, generated: int) -> Iterator[Job]:
    """Programs with the sizes and types that they are compiled with."""
    kernels = ROOT / "tests" / "kernels"
    for folder in (kernels, kernels / "refused"):
        cases = tomllib.loads((folder / "cases.toml").read_text(encoding="utf-8"))
        for name, case in cases.items():
            sizes = case["sizes"][0] if isinstance(case.get("sizes"), list) else case.get("sizes", {})
            yield _job(folder / f"{name}.tex", sizes)
            yield _job(folder / f"{name}.tex", {})
    for path in sorted((ROOT / "tests" / "polyhedral" / "programs").glob("*.tex")):
        first = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("-- sizes:")
        yield _job(path, {key: int(value) for key, _, value in (part.partition("=") for part in first.split())})
        yield _job(path, {})
    for folder in (ROOT / "examples", ROOT / "tests" / "errors"):
        for path in sorted(folder.glob("*.tex")):
            yield _job(path, {})
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from programs import generate
    from soup import brew

    for count, make in ((soup, brew), (generated, generate)):
        for seed in range(count):
            case = make(seed)
            yield {
                "name": f"{make.__name__} {seed}",
                "text": case.text,
                "sizes": dict(case.bound),
                "types": dict(case.types),
            }


def _job(path: Path, sizes: dict[str, int]) -> Job:
    text = path.read_bytes().decode("utf-8", errors="replace")
    return {"name": str(path.relative_to(ROOT)), "text": text, "sizes": sizes, "types": {}}


def say(job: Job) -> Said:
    """Everything that the compiler says about one program."""
    import warnings

    import texpr
    from texpr.codegen.manifest_io import write_manifest

    warnings.simplefilter("ignore")
    said: Said = {}
    stem = f"{job['name']} {' '.join(f'{k}={v}' for k, v in job['sizes'].items())}"
    try:
        found = list(texpr.parse(job["text"]))
    except texpr.TExprError as refused:
        return {f"{stem}: parse": str(refused)}
    for kernel in found:
        for target in TARGETS:
            place = f"{stem}: {kernel.name} {target}"
            try:
                sizes = {
                    s.name: job["sizes"][s.name]
                    for s in kernel.core(types=job["types"]).sizes
                    if s.name in job["sizes"]
                }
                made = kernel.compile(target, sizes=sizes, types=job["types"])
            except texpr.TExprError as refused:
                said[place] = str(refused)
                continue
            emission = made.build.result("emit")
            texts = {name: data.decode() for name, data in emission.files.items() if not name.startswith("include/")}
            texts |= {"manifest": write_manifest(made.manifest), "map": str(made.mapping), "graph": str(made.graph)}
            texts["warnings"] = "\n".join(map(str, made.warnings))
            said |= {f"{place} {name}": text for name, text in texts.items()}
    return said


def emit(todo: Path, done: Path) -> None:
    """Run in a process of its own, whose PYTHONPATH says which compiler speaks."""
    said: Said = {}
    for job in json.loads(todo.read_text(encoding="utf-8")):
        said |= say(job)
    done.write_text(json.dumps(said), encoding="utf-8")


def texts_of(tree: Path, todo: Path, done: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "TEXPR_CACHE_DIR": str(done.parent)}
    command = [sys.executable, str(Path(__file__).resolve()), "--emit", str(todo), str(done)]
    return subprocess.Popen(command, env=environment, cwd=tree)


def unpacked(commit: str, folder: Path) -> Path:
    """The tree of a commit."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="tar")
    return folder


def differences(before: Said, after: Said) -> Iterator[str]:
    for place in sorted(before.keys() | after.keys()):
        old, new = before.get(place), after.get(place)
        if old != new:
            lines = difflib.unified_diff((old or "").splitlines(), (new or "").splitlines(), lineterm="", n=1)
            yield "\n".join([f"==== {place}", *list(lines)[2 : 2 + SHOWN]])


def main() -> int:
    if sys.argv[1:2] == ["--emit"]:
        emit(Path(sys.argv[2]), Path(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("--soup", type=int, default=100)
    parser.add_argument("--random", type=int, default=100)
    parser.add_argument("--save", type=Path, help="keep what BASE says in a file")
    parser.add_argument("--only", default="", help="only programs whose name has this part")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        todo, before, after = folder / "todo.json", folder / "before.json", folder / "after.json"
        found = [job for job in jobs(options.soup, options.random) if options.only in job["name"]]
        todo.write_text(json.dumps(found), encoding="utf-8")
        running = [texts_of(ROOT, todo, after)]
        if Path(options.base).is_file():
            before = Path(options.base)
        else:
            running.append(texts_of(unpacked(options.base, folder / "base"), todo, before))
        if max(process.wait() for process in running):
            return 2
        old: Said = json.loads(before.read_text(encoding="utf-8"))
        new: Said = json.loads(after.read_text(encoding="utf-8"))
        if options.save is not None:
            options.save.write_text(json.dumps(old), encoding="utf-8")
    old = {place: text for place, text in old.items() if options.only in place}
    found_differences = list(differences(old, new))
    print("\n".join([*found_differences, f"{len(new)} texts, {len(found_differences)} differ"]))
    return 1 if found_differences else 0


if __name__ == "__main__":
    sys.exit(main())
