"""The house keeps its shape: import direction, packaging, what stays light, what the documents name."""

import ast
import re
import subprocess
import sys
import tokenize
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = {
    "grammar": (),
    "polyhedral": ("grammar",),
    "codegen": ("polyhedral", "grammar"),
    "runtime": ("codegen", "grammar"),
}
POLYHEDRAL = {
    "layout": (),
    "model": (),
    "prove": ("layout",),
    "schedule": ("layout", "model", "prove"),
    "mapped": ("layout",),
    "orders": ("layout", "mapped"),
    "simulate": ("layout", "mapped"),
    "figures": ("layout", "mapped"),
    "verify": (),
    "map": ("layout", "model", "prove", "schedule", "mapped", "orders"),
}
RUNTIME_MAY = {
    "texpr.codegen.manifest",
    "texpr.codegen.manifest_io",
    "texpr.codegen.tensor_map",
    "texpr.grammar.bits",
    "texpr.grammar.paths",
    "texpr.grammar.records",
    "texpr.grammar.types",
    "texpr.grammar.diagnostics",
    "texpr.grammar.source",
    "texpr.grammar.strides",
    "texpr.grammar.codes",
    "texpr.grammar.index.operators",
}


def own_sources() -> list[Path]:
    """Every Python file of the product, once (the links in texpr/ are not followed)."""
    files = [f for floor in FLOORS for f in (ROOT / floor).rglob("*.py")]
    return sorted(files + list((ROOT / "texpr").glob("*.py")))


def all_sources() -> list[Path]:
    """Every Python file of the repository: the product, its tests, its benchmarks, its examples."""
    others = [f for folder in ("tests", "benchmarks", "examples") for f in (ROOT / folder).rglob("*.py")]
    return own_sources() + sorted(others)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def comments(path: Path) -> list[str]:
    with path.open("rb") as file:
        return [t.string for t in tokenize.tokenize(file.readline) if t.type == tokenize.COMMENT]


@cache
def imported_modules(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return frozenset(found)


@pytest.mark.parametrize("path", own_sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    floor = path.relative_to(ROOT).parts[0]
    for module in imported_modules(path):
        parts = module.split(".")
        assert parts[0] not in FLOORS, f"say texpr.{module}"
        if parts[0] != "texpr" or floor == "texpr":
            continue
        assert len(parts) > 1 and parts[1] in FLOORS, f"{floor} imports the face: {module}"
        assert parts[1] == floor or parts[1] in FLOORS[floor], f"{floor} imports {module}"
        if floor == "runtime" and parts[1] != "runtime":
            assert module in RUNTIME_MAY, f"runtime may not import {module}"


def test_packages_of_the_polyhedral_floor_import_one_way() -> None:
    assert {p.parent.name for p in (ROOT / "polyhedral").glob("*/__init__.py")} <= set(POLYHEDRAL)
    for path in (ROOT / "polyhedral").rglob("*.py"):
        parts = path.relative_to(ROOT / "polyhedral").parts
        may = {parts[0], *POLYHEDRAL[parts[0]]} if len(parts) > 1 else set()
        imported = {m.split(".")[2] for m in imported_modules(path) if m.startswith("texpr.polyhedral.")}
        assert imported & set(POLYHEDRAL) <= may, f"{path}: {sorted(imported & set(POLYHEDRAL) - may)}"


def test_one_module_imports_islpy() -> None:
    doors = [path for path in own_sources() if any(m.split(".")[0] == "islpy" for m in imported_modules(path))]
    assert doors == [ROOT / "polyhedral" / "isl.py"]


def test_one_module_imports_z3() -> None:
    doors = [path for path in own_sources() if any(m.split(".")[0] == "z3" for m in imported_modules(path))]
    assert doors == [ROOT / "polyhedral" / "rational.py"]


def test_the_verifier_of_mappings_shares_no_code_with_the_compiler() -> None:
    for path in (ROOT / "polyhedral" / "verify").glob("*.py"):
        own = [m for m in imported_modules(path) if m.startswith("texpr.")]
        assert all(m.startswith("texpr.polyhedral.verify.") for m in own), path


def test_no_file_raises_the_recursion_limit() -> None:
    assert not [path for path in own_sources() if "setrecursionlimit" in path.read_text(encoding="utf-8")]


def test_no_isl_value_is_made_of_text() -> None:
    made = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in own_sources()
        if "isl" in path.read_text(encoding="utf-8")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (
            node.func.attr == "read_from_str"
            or ast.unparse(node.func) in ("isl.Map", "isl.Set", "isl.PwAff", "isl.Aff")
        )
    ]
    assert made == []


def test_the_runtime_loads_without_compiler_libraries() -> None:
    code = (
        "import sys\n"
        "for name in ('lark', 'islpy', 'z3', 'numba', 'llvmlite'): sys.modules[name] = None\n"
        "import pkgutil, importlib, texpr.runtime\n"
        "for m in pkgutil.walk_packages(texpr.runtime.__path__, 'texpr.runtime.'): importlib.import_module(m.name)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr


def test_importing_texpr_loads_no_heavy_library() -> None:
    heavy = ("lark", "islpy", "z3", "numba", "numpy", "rich", "ml_dtypes", "cuda")
    code = f"import sys, texpr; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == "[]"


def test_a_kernel_of_one_band_loads_no_form_that_it_has_not() -> None:
    other = [
        "grammar.numerics",
        "codegen.cpu.emit",
        *(f"polyhedral.schedule.{n}" for n in ("propose", "check", "draft")),
    ]
    other += [
        f"polyhedral.map.{n}"
        for n in ("tiled", "columns", "parted", "tallied", "scanned", "contracted", "cores", "legal")
    ]
    code = (
        "import sys, texpr\n"
        "texpr.load('tests/kernels/vector_add.tex').only.compile('cuda:sm_90a').source\n"
        f"print([m for m in {other} if f'texpr.{{m}}' in sys.modules], 'numpy' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == "[] False"


def test_a_product_on_tensor_cores_loads_no_arrays() -> None:
    sums = "par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }"
    text = f"kernel f(A: bf16[M, K], B: bf16[K, N], C: f32[M, N]) {{ {sums} }}"
    code = (
        f"import sys, texpr; texpr.parse({text!r}).only.compile('cuda:sm_90a', M=4096, N=4096, K=4096).source\n"
        "print('numpy' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == "False"


@pytest.mark.parametrize("folder", ["grammar/check", "grammar/python", "grammar/interpret", "grammar/text"])
def test_readers_share_a_context_and_no_base_class(folder: str) -> None:
    may = {"Exception", "Enum", "StrEnum", "NamedTuple", "TypedDict", "Protocol", "Generic", "RefusedError"}
    for path in (ROOT / folder).glob("*.py"):
        for node in ast.walk(tree_of(path)):
            bases = node.bases if isinstance(node, ast.ClassDef) else []
            assert {ast.unparse(base).partition("[")[0] for base in bases} <= may, f"{path}: {node}"


READ_BY_REGEX = {
    "codegen/cpu/names.py": "names of the program",
    "codegen/cuda/names.py": "names of the program and of its launches",
    "codegen/headers.py": "includes of the hand-written headers",
    "codegen/manifest_io.py": "digests",
    "codegen/replace.py": "folders that a killed writer left",
    "codegen/nvrtc.py": "names of shared libraries",
}


def test_no_emitter_searches_its_own_text() -> None:
    searching = {str(p.relative_to(ROOT)) for p in (ROOT / "codegen").rglob("*.py") if "re" in imported_modules(p)}
    assert searching == set(READ_BY_REGEX)


COUNTED = ("bits", "bytes", "swizzle", "bias", "c_char", "max_alternatives", "max_cases")


def uncounted(source: str) -> list[str]:
    """The statements with a number 32 or 128 that name nothing which it could count but threads: no bits or bytes."""
    found: list[str] = []
    if "32" not in source and "128" not in source:
        return found
    tree = ast.parse(source)
    around = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for constant in ast.walk(tree):
        if isinstance(constant, ast.Constant) and type(constant.value) is int and constant.value in (32, 128):
            node: ast.AST = constant
            while not isinstance(node, ast.Compare | ast.stmt | ast.keyword):
                node = around[node]
            said = ast.unparse(node).lower().partition("\n")[0]
            if not any(word in said for word in COUNTED):
                found.append(said)
    return found


def test_only_the_target_says_how_many_threads_a_warp_has() -> None:
    assert uncounted("lanes = min(threads, 32) - 1") and uncounted("if place is WARPGROUP: high = threads // 128")
    assert not uncounted("narrow = dtype.bits < 32")
    files = [path for floor in ("polyhedral", "codegen") for path in (ROOT / floor).rglob("*.py")]
    found = {str(p.relative_to(ROOT)): uncounted(p.read_text(encoding="utf-8")) for p in files if p.name != "target.py"}
    assert not {path: numbers for path, numbers in found.items() if numbers}


def test_packages_mapping_and_links_agree() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert set(config["packages"]) == set(config["package-dir"])
    for package, folder in config["package-dir"].items():
        assert (ROOT / folder / "__init__.py").is_file(), package
        parts = package.split(".")
        if len(parts) == 2:
            assert (ROOT / "texpr" / parts[1]).is_symlink()
    on_disk = {p.parent for p in (ROOT / f for f in FLOORS) for p in p.rglob("__init__.py")}
    assert on_disk == {ROOT / folder for package, folder in config["package-dir"].items() if package != "texpr"}


def test_architecture_names_every_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named: list[str] = []
    for floor in (*FLOORS, "texpr"):
        section = text.partition(f"\n### `{floor}/`")[2].partition("\n### ")[0]
        named += [f"{floor}/{name}" for name in re.findall(r"^\| ([\w/]+\.py) \|", section, re.MULTILINE)]
    there = [str(p.relative_to(ROOT)) for p in own_sources()]
    assert sorted(named) == sorted(p for p in there if not p.endswith("/__init__.py") or p == "texpr/__init__.py")


def test_files_over_400_lines_have_a_reason() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    reasons = text.partition("## Long files")[2].partition("\n## ")[0]
    long = [p for p in all_sources() if p.read_text(encoding="utf-8").count("\n") > 400]
    assert not [str(p.relative_to(ROOT)) for p in long if f"| {p.relative_to(ROOT)} |" not in reasons]


def test_every_silenced_finding_has_a_reason() -> None:
    silenced = re.compile(r"# ?(ruff: ?|flake8: ?)?noqa\b|# ?(type|mypy): ?ignore\b")
    reasoned = re.compile(r"# (ruff: )?noqa: [A-Z]+\d+(, [A-Z]+\d+)* -- \S|# type: ignore\[[\w, -]+\]  # \S")
    some = [path for path in all_sources() if re.search("noqa|ignore", path.read_text(encoding="utf-8"))]
    found = [(path, text) for path in some for text in comments(path) if silenced.match(text)]
    assert any(path.name == "build.py" for path, _ in found)
    assert not [f"{path.relative_to(ROOT)}: {text}" for path, text in found if not reasoned.match(text)]


def test_no_comprehension_takes_the_name_of_what_its_function_calls() -> None:
    """Some releases of Python 3.12 then look for the module's name among the function's own, and find none."""
    for path in all_sources():
        tree = tree_of(path)
        imported = {
            a.asname or a.name for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names
        }
        names = imported | {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
            inner = list(ast.walk(function))
            used = [n for n in inner if isinstance(n, ast.Name) and n.id in names]
            for each in inner if used else ():
                if isinstance(each, ast.ListComp | ast.SetComp | ast.DictComp):
                    bound = {n.id for g in each.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
                    inside = {id(n) for n in ast.walk(each)}
                    assert not bound & {n.id for n in used if id(n) not in inside}, f"{path}:{each.lineno}"
