"""Compilers as processes: one that waits is taken by who needs it, ends by itself, and leaves nothing behind."""

import os
import signal
import time
from pathlib import Path

import pytest

import texpr
from texpr.codegen import processes, toolchain

KERNEL = '#line 1 "/texpr/k.cu"\nextern "C" __global__ void k() {}\n'
ADDITION = "kernel add(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] + 1 } }"


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch: pytest.MonkeyPatch):
    """None sees what another test began, and there are cores for more than one process."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    processes.end_ahead()
    yield
    processes.end_ahead()


def program(path: Path, script: str) -> tuple[str, ...]:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return (str(path),)


TAKES = "read -r size; [ $size ] || exit 0; head -c $size"  # what it is told, to its output
ANSWERS = f"while {TAKES} > /dev/null; do echo done >&2; echo 0; done"


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.nvrtc
def test_the_compiler_that_began_ahead_compiles_the_next_text():
    alone = toolchain.compile_cubin(KERNEL, "sm_80", by="nvrtc")
    toolchain.begin_device_compiler("nvrtc")
    (ahead,) = processes._ahead
    assert toolchain.compile_cubin(KERNEL, "sm_80", by="nvrtc") == alone
    assert [each.one for each in processes._ahead] == [ahead.one]
    processes.end_ahead()
    assert ahead.one.process.returncode is not None and not is_there(ahead.one.group)


@pytest.mark.nvrtc
def test_a_compiler_that_has_compiled_compiles_the_next_text_alike():
    other = KERNEL.replace("{}", "{ __threadfence(); }")
    alone = [toolchain.compile_cubin(text, "sm_80", by="nvrtc") for text in (KERNEL, other)]
    (kept,) = processes._ahead
    again = [toolchain.compile_cubin(text, "sm_80", by="nvrtc") for text in (other, KERNEL)]
    assert again[::-1] == alone and [each.one for each in processes._ahead] == [kept.one]
    with pytest.raises(texpr.TExprError, match="E0504"):
        toolchain.compile_cubin("what", "sm_80", by="nvrtc")
    assert [each.one for each in processes._ahead] != [kept.one]  # one that has refused a text does not stay


@pytest.mark.nvrtc
def test_one_compiler_is_begun_ahead_of_many_texts():
    toolchain.begin_device_compiler("nvrtc")
    (ahead,) = processes._ahead
    toolchain.begin_device_compiler("nvrtc")
    assert processes._ahead == [ahead]


@pytest.mark.nvrtc
def test_the_compiler_begins_where_a_text_for_a_gpu_is_made():
    kernel = texpr.parse(ADDITION).only
    kernel.compile("cuda:sm_90a", sizes={"N": 8}, stop_after="emit")
    kernel.compile("cpu", sizes={"N": 8}, hints={}, checks=False)
    assert not processes._ahead
    kernel.compile("cuda:sm_90a", sizes={"N": 1 << 10}, checks=True, objective="time")
    assert len(processes._ahead) == 1 or not toolchain.find_nvrtc()


def test_no_compiler_begins_ahead_where_there_is_one_core(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    processes.begin_ahead(program(tmp_path / "waits", "cat"))
    assert not processes._ahead


def test_what_waits_is_told_its_folder_and_its_options_and_waits_again(tmp_path):
    waiting = program(tmp_path / "waits", f"while {TAKES} | tr '\\000' '\\n' >&2; do echo 0; done")
    processes.begin_ahead(waiting)
    (ahead,) = processes._ahead
    for options in (("-a", "b c"), ("-d",)):
        done = processes.run_told(waiting, options, tmp_path, 50)
        assert (done.code, done.stderr.splitlines()) == (0, [str(tmp_path), *options])
        assert [each.one for each in processes._ahead] == [ahead.one] and ahead.one.process.poll() is None


def test_what_is_said_at_length_does_not_stop_it(tmp_path):
    waiting = program(tmp_path / "waits", f"{TAKES} > /dev/null; head -c 300000 /dev/zero >&2; echo 3; read -r _")
    done = processes.run_told(waiting, (), tmp_path, 50)
    assert (done.code, len(done.stderr)) == (3, 300000) and not processes._ahead


def test_one_that_has_ended_is_replaced(tmp_path):
    waiting = program(tmp_path / "waits", ANSWERS)
    processes.begin_ahead(waiting)
    (ahead,) = processes._ahead
    os.killpg(ahead.one.group, signal.SIGKILL)
    ahead.one.process.wait(50)
    assert processes.run_told(waiting, (), tmp_path, 50).stderr == "done\n"


def test_one_that_ends_just_when_it_is_told_is_replaced(tmp_path):
    once = tmp_path / "once"
    waiting = program(tmp_path / "waits", f"[ -e {once} ] || {{ touch {once}; exit 75; }}; {ANSWERS}")
    processes.begin_ahead(waiting)
    assert processes.run_told(waiting, (), tmp_path, 50).stderr == "done\n" and once.exists()


def test_another_program_takes_the_place_of_one_that_waits(tmp_path):
    first, second = program(tmp_path / "first", "cat"), program(tmp_path / "second", ANSWERS)
    processes.begin_ahead(first)
    (ahead,) = processes._ahead
    processes.begin_ahead(second)
    assert ahead.one.process.returncode is not None and not is_there(ahead.one.group)
    processes.begin_ahead(first)
    assert processes.run_told(second, (), tmp_path, 50).stderr == "done\n"
    assert [each.waiting for each in processes._ahead] == [second]


def test_one_that_cannot_begin_is_for_its_user_to_find(tmp_path):
    processes.begin_ahead((str(tmp_path / "none"),))
    assert processes.run_told((str(tmp_path / "none"),), (), tmp_path, 50).code == 127


def test_a_time_limit_ends_one_that_began_ahead(tmp_path):
    waiting = program(tmp_path / "waits", f"{TAKES}; sleep 60")
    processes.begin_ahead(waiting)
    (ahead,) = processes._ahead
    assert processes.run_told(waiting, (), tmp_path, 0.1).code is None
    assert ahead.one.process.returncode == -signal.SIGKILL and not is_there(ahead.one.group)


def test_a_forked_process_leaves_what_waits_to_the_one_that_began_it(tmp_path):
    waiting = program(tmp_path / "waits", ANSWERS)
    processes.begin_ahead(waiting)
    (ahead,) = processes._ahead
    child = os.fork()
    if child == 0:
        processes.end_ahead()
        os._exit(0)
    os.waitpid(child, 0)
    assert ahead.one.process.poll() is None
    assert processes.run_told(waiting, (), tmp_path, 50).stderr == "done\n"


@pytest.mark.nvrtc
def test_nvrtc_ends_where_nothing_comes(monkeypatch):
    found = toolchain.find_nvrtc()
    assert found is not None
    with processes._begun((*found.driver, found.path, "--wait", "3"), Path("/"), processes.subprocess.PIPE) as one:
        one.process.stdin.close()
        one.process.stdin = None
        begun = time.monotonic()
        assert one.process.wait(50) == 3 and time.monotonic() - begun < 50


def test_the_status_is_the_last_line_of_what_a_compiler_says(tmp_path: Path):
    script = f"while {TAKES} > /dev/null; do echo a remark; sleep .1; echo 3; done"
    assert processes.run_told(program(tmp_path / "remarks", script), ["a"], tmp_path, 5.0).code == 3


def test_a_compiler_that_never_stops_talking_is_ended_in_time(tmp_path: Path):
    waiting = program(tmp_path / "talks", f"{TAKES} > /dev/null; while :; do echo talk >&2; done")
    assert processes.run_told(waiting, ["a"], tmp_path, 0.5).code is None
