"""Programs that are short to write and long to prove: they end by counted limits, with a diagnostic."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRIMES = (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079, 10091, 10093)
MODULI = " + ".join(f"(i % {p}) + (i / {p + 2})" for p in PRIMES)
WIDE = 2**61 - 1
LOADS = "\n".join(
    f"par 512 p{n} {{ t[p{n} * 2] = t[p{n} * 2 + 1] + 1.0 }}\npar 512 q{n} {{ t[q{n} * 2 + 1] = t[q{n} * 2] + 1.0 }}"
    for n in range(60)
)
ROTATED = "\n".join(f"par 1024 p{n} {{ t[(p{n} + {n} * s) % 1024] += 1.0 }}" for n in range(20))
HEAD = "kernel k(inout A: f32[N]) { par N b { new shared t: f32[1024]\n par 1024 z { t[z] = 0.0 }\n"
PROGRAMS = {
    "many coprime moduli": f"kernel k(inout A: f32[100000000]) {{ par 1000000 i {{ A[{MODULI}] = 1.0 }} }}",
    "many moduli and a free size": f"kernel k(inout A: f32[100000000]) {{ par N i {{ A[{MODULI}] = 1.0 }} }}",
    "a modulus of 61 bits": f"kernel k(inout A: f32[{WIDE}]) {{ par 1000 i, 1000 j, 1000 l "
    f"{{ A[(i * {WIDE // 1000} + j * {WIDE // 1007} + l * {WIDE // 1009}) % {WIDE}] = 1.0 }} }}",
    "many accesses between barriers": f"{HEAD}{LOADS}\nA[b] = t[0] }} }}",
    "many rotations in a loop": f"{HEAD}seq 100 s {{ {ROTATED} }}\nA[b] = t[0] }} }}",
}
RUN = """
import resource, sys, texpr
resource.setrlimit(resource.RLIMIT_CPU, (40, 40))  # a hang inside a library ends here, and is a failure
try:
    texpr.parse(sys.stdin.read()).only.compile("cuda:sm_90a")
except texpr.TExprError as wrong:
    print(*(d.code for d in wrong.diagnostics))
else:
    print("built")
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_is_long_to_prove_ends(name: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", RUN]
    done = subprocess.run(command, input=PROGRAMS[name], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[0] in ("built", "E0307", "E0308")
