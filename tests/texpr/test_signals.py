"""A signal ends `texpr` at once and in silence, with its compilers and its temporary files, whatever it is doing."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADD = "kernel add(A: f32[N], C: f32[N]) { par N i { C[i] = A[i] } }\n"

# Sends the signal at an import after the first line of ours: within the nth import, from then on.
AT_IMPORT = """
import os, runpy, sys
count, begun = int(sys.argv[1]), False
def watch(event, arguments):
    global begun, count
    if event == "import":
        begun = begun or arguments[0] == "texpr.entry"
        count -= begun
        if count == 0:
            os.kill(os.getpid(), 2)
sys.addaudithook(watch)
sys.argv = ["texpr", *sys.argv[2:]]
runpy.run_module("texpr", run_name="__main__", alter_sys=True)
"""

# Says which processes it is, and does not end.
NVCC = """#!/bin/sh
case "$1" in --version) echo "Cuda compilation tools, release 13.0"; exit 0;; esac
sleep 100 &
echo half-written > kernel.cubin
echo $$ $! > "$PIDS.new"
mv "$PIDS.new" "$PIDS"
wait
"""


@pytest.fixture(autouse=True)
def usual_signals() -> Iterator[None]:
    """Commands start as from a prompt: a shell that runs the tests in the background lets them ignore SIGINT."""
    asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ignored = [number for number in asked if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture
def add(tmp_path: Path) -> Path:
    path = tmp_path / "add.tex"
    path.write_text(ADD)
    return path


@pytest.mark.parametrize("number", [1, 2, 3, 5, 20, 60, 150, 300, 450, 600])
def test_an_interrupt_in_any_import_is_silent(number: int, add: Path) -> None:
    command = [sys.executable, "-c", AT_IMPORT, str(number), "run", str(add), "-D", "N=8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("command", "delay_s"), [("check", 0.02), ("map", 0.3), ("build", 0.6), ("run", 1.0)], ids=lambda value: str(value)
)
def test_an_interrupt_after_any_delay_is_silent(command: str, delay_s: float, add: Path) -> None:
    arguments = {"build": ["-o", str(add.parent / "out")], "run": ["-D", "N=8", "--check"]}.get(command, [])
    script = f"import sys, threading, os\nthreading.Timer({delay_s}, os.kill, (os.getpid(), 2)).start()\n"
    run = "sys.argv[0] = 'texpr'\nfrom texpr.entry import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", script + run, command, str(add), *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 130
    assert not {"Traceback", "Interrupt", "internal", "Abort"} & set(re.findall("[A-Za-z]+", done.stderr))


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc for processes")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_signal_ends_the_compiler_and_leaves_nothing(name: str, add: Path, tmp_path: Path) -> None:
    tools, scratch, pids = tmp_path / "bin", tmp_path / "scratch", tmp_path / "pids"
    tools.mkdir()
    scratch.mkdir()
    (tools / "nvcc").write_text(NVCC)
    (tools / "nvcc").chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(scratch), "PIDS": str(pids),
        "CUDA_HOME": "", "TEXPR_CACHE_DIR": str(tmp_path / "cache"), "TEXPR_DEVICE_COMPILER": "nvcc",
    }  # fmt: skip
    # A signal that was ignored at the start stays ignored.
    ignoring = "trap '' HUP; exec \"$@\"" if name == "SIGTERM" else 'exec "$@"'
    texpr = [sys.executable, "-m", "texpr", "build", str(add), "-D", "N=8", "-o", str(tmp_path / "out")]
    command = ["sh", "-c", ignoring, "sh", *texpr]
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not pids.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        if name == "SIGTERM":
            process.send_signal(signal.SIGHUP)
        number = signal.Signals[name]
        process.send_signal(number)
        said = process.communicate()
    assert (process.returncode, *said) == (-number if name == "SIGKILL" else 128 + number, "", "")
    compilers = [int(pid) for pid in pids.read_text().split()]
    for _ in range(3000):  # they end when the kernel gets to it
        if not any(map(is_alive, compilers)):
            break
        time.sleep(0.01)
    else:
        for pid in compilers:
            os.kill(pid, signal.SIGKILL)
        pytest.fail("a compiler outlived the process that started it")
    assert not (tmp_path / "out").exists()
    assert name == "SIGKILL" or list(scratch.iterdir()) == []
    assert not list(tmp_path.glob("cache/**/.new-*"))


def shell(line: str, *args: object) -> subprocess.CompletedProcess[str]:
    """A line of shell in which `texpr` is the command."""
    texpr = f'texpr() {{ "{sys.executable}" -m texpr "$@"; }}\n'
    command = ["bash", "-c", texpr + line, "bash", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize("output", ["> /dev/full", ">&-", "< /dev/null > /dev/full 2>/dev/full", "<&- >&- 2>&-"])
def test_output_that_cannot_be_written_is_an_error_of_the_environment(output: str) -> None:
    done = shell(f"texpr version {output}")
    assert done.returncode == 3
    assert done.stdout == "" and done.stderr.count("\n") == (0 if "2>" in output else 1)
    assert "2>" in output or done.stderr.startswith("error: the output cannot be written: ")


def test_messages_that_cannot_be_written_are_no_traceback(add: Path) -> None:
    assert shell("texpr check nowhere.tex 2>/dev/full").returncode == 3
    assert shell("texpr check $1 2>&-", add).stdout.count("no races") == 1


def test_a_reader_that_leaves_ends_the_command_in_silence() -> None:
    done = shell('texpr explain E0301 | true; echo "${PIPESTATUS[0]}"')
    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.parametrize("command", ["fmt $1", "build $1 -o $1.out --source-only"])
def test_a_full_disk_is_an_error_of_the_environment(command: str, tmp_path: Path) -> None:
    file = tmp_path / "add.tex"
    file.write_text(ADD)
    done = shell(f"ulimit -f 0; texpr {command}", file)  # the kernel says EFBIG where a disk says ENOSPC
    assert (done.returncode, "error[E0608]" in done.stderr, "Traceback" in done.stderr) == (3, True, False), done.stderr
    assert list(tmp_path.iterdir()) == [file] and file.read_text() == ADD
