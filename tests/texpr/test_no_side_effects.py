"""Compiling a hostile program opens no files but its own, starts nothing, and imports nothing that its text chose."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OWN = [path for path in (sys.prefix, sys.base_prefix, str(ROOT), sys.pycache_prefix) if path]  # where modules are

# Watches the interpreter from before TExpr is imported; prints every event that is none of its business.
WATCH = """
import sys, os
allowed = tuple(os.path.realpath(p) for p in sys.argv[1].split(os.pathsep))
def watch(event, args):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "socket.bind"):
        print("EVENT", event, args, flush=True)
    if event == "open" and isinstance(args[0], (str, bytes)):
        path = os.path.realpath(os.fsdecode(args[0]))
        writes = isinstance(args[1], str) and any(c in args[1] for c in "wax+")
        system = path.startswith(("/usr", "/lib", "/etc", "/proc", "/dev", "/sys"))
        if not path.startswith(allowed) and (writes or not system):
            print("EVENT open", path, args[1], flush=True)
sys.addaudithook(watch)
sys.argv = ["texpr", *sys.argv[2:]]
from texpr.entry import main
main()
"""
HOSTILE = """
import secrets
import os
-- \"\"\" + __import__('os').system('id') + \"\"\"
kernel __import__(system: f32[N], lambda_: f32[N]) {
    par N i {
        lambda_[i] = system[i]   -- */ #include "/etc/passwd"
    }
}
"""
PLAIN = HOSTILE.replace("import secrets\nimport os\n", "").replace("kernel __import__", "kernel exec_os_system")


def test_the_watch_sees_what_it_should(tmp_path: Path) -> None:
    watched = WATCH[: WATCH.index("sys.argv =")] + "os.system('true'); open(os.path.join(sys.argv[2], 'x'), 'w')"
    arguments = [sys.executable, "-c", watched, str(tmp_path / "elsewhere"), str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.count("EVENT") == 2


@pytest.mark.parametrize(
    "command",
    [
        ("check", "FILE"),
        ("fmt", "--check", "FILE"),
        ("map", "FILE"),
        ("graph", "FILE"),
        ("build", "FILE", "-o", "OUT", "--source-only"),
        ("build", "FILE", "-o", "OUT", "--source-only", "-t", "cpu"),
    ],
    ids=lambda c: "-".join(w for w in c if w.islower()),
)
@pytest.mark.parametrize("text", [HOSTILE, PLAIN], ids=["imports", "plain"])
def test_a_hostile_text_has_no_side_effects(tmp_path: Path, command: tuple[str, ...], text: str) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "secrets.tex").write_text("kernel secret(A: f32[N]) { par N i { A[i] = 1.0 } }")
    file = folder / "hostile.tex"
    file.write_text(text)
    names = {"FILE": str(file), "OUT": str(folder / "out")}
    python = os.pathsep.join([str(folder), *OWN])
    arguments = [sys.executable, "-c", WATCH, python, *(names.get(word, word) for word in command)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TEXPR_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    assert "EVENT" not in done.stdout + done.stderr, done.stdout
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1)


HOSTILE_PYTHON = """
import os, stolen, texpr
from stolen import *
from texpr import f32, par
open("written", "w").write("x"); os.system("true")
N = os.getpid()

def trap(*arguments, **keywords):
    open("trapped", "w"); os.system("true")

class Trap:
    def __init_subclass__(cls): trap()
    __class_getitem__ = __getattr__ = trap

class Below(Trap): trap()

@trap
@texpr.kernel
def decorated(A: f32["N"], *, b: Trap["N"] = trap()):
    for i in par("N"):
        A[i] = 1.0

@texpr.kernel(where=trap())
def stated(A: f32["N"]):
    A[0] = Trap.x + trap()

@texpr.kernel
def plain(A: f32["N"]) -> None:
    for i in par("N"):
        A[i] = 1.0
"""
STOLEN = "open('imported', 'w')"


@pytest.mark.parametrize(
    ("kernel", "code"), [("decorated", 1), ("stated", 1), ("plain", 0)], ids=["decorated", "stated", "plain"]
)
@pytest.mark.parametrize("command", ["check", "map"])
def test_a_hostile_python_file_is_read_and_never_run(tmp_path: Path, command: str, kernel: str, code: int) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "stolen.py").write_text(STOLEN)
    (folder / "hostile.py").write_text(HOSTILE_PYTHON)
    allowed = os.pathsep.join([str(folder / "hostile.py"), *OWN])
    arguments = [sys.executable, "-c", WATCH, allowed, command, f"hostile.py:{kernel}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TEXPR_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    assert "EVENT" not in done.stdout + done.stderr, done.stdout
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    assert {path.name for path in folder.iterdir()} == {"hostile.py", "stolen.py"}
