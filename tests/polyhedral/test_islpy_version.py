"""islpy is told its version, so that it loads nothing that reads mail and archives; and it is the right one."""

import subprocess
import sys


def said(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_compilation_loads_nothing_that_reads_mail_archives_or_arrays() -> None:
    sums = "par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }"
    text = f"kernel f(A: bf16[M, K], B: bf16[K, N], C: f32[M, N]) {{ {sums} }}"
    loaded = said(
        f"import sys, texpr; texpr.parse({text!r}).only.compile('cuda:sm_90a', M=4096, N=4096, K=4096).source\n"
        "print([m for m in ('email', 'zipfile', 'importlib.metadata', 'numpy') if m in sys.modules])"
    )
    assert loaded == ["[]"]


def test_the_version_that_islpy_is_told_is_its_own() -> None:
    first, then = said(
        "import sys, texpr.polyhedral.islpy_version\n"
        "told = sys.modules['islpy.version']\n"
        "print(told.VERSION, told.VERSION_TEXT, told.VERSION_STATUS)\n"
        "import texpr.polyhedral.isl, islpy.version\n"
        "assert islpy.version is not told and islpy.version.__file__\n"
        "print(islpy.version.VERSION, islpy.version.VERSION_TEXT, islpy.version.VERSION_STATUS)"
    )
    assert first == then


def test_an_islpy_that_was_loaded_before_keeps_its_module() -> None:
    said(
        "import islpy, islpy.version, sys; own = islpy.version\n"
        "import texpr.polyhedral.isl; assert sys.modules['islpy.version'] is own"
    )
