"""A sample of bombs; `bombs.py` brews any number and holds them to the bar of 10 s. Here the bar is wider, and only
says that no text runs away: a machine may be slow, and what is counted is not the time."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bombs import KINDS, brew, judge, load_everything

WIDE_SECONDS = 60
FACTS = ", ".join(f"N{k} != 7" for k in range(18))
SIZES = range(80)
FACTORS = (22726873962, 271069379397, 470510913895, 581929331018, 441944281451, 451019050270, 218412810195)
KNOWN = {
    "18 facts with two alternatives, in one shape": f"kernel k(A: f32[{' + '.join(f'N{k}' for k in range(18))}]) "
    f"where {FACTS} {{ par N0 i {{ A[i] = 1.0 }} }}",
    "18 facts with two alternatives, one used": f"kernel k({', '.join(f'A{k}: f32[N{k}]' for k in range(18))}) "
    f"where {FACTS} {{ par N0 i {{ A0[i] = 1.0 }} }}",
    "80 free sizes": f"kernel k({', '.join(f'A{k}: f32[N{k}]' for k in SIZES)}) "
    f"{{ {' '.join(f'par N{k} x{k} {{ A{k}[x{k}] = 1.0 }}' for k in SIZES)} }}",
    "80 free sizes in one statement": f"kernel k({', '.join(f'A{k}: f32[N{k}]' for k in SIZES)}) "
    f"{{ par N0 i {{ A0[i] = {' + '.join(f'select(i < N{k}, A{k}[i], 0.0)' for k in SIZES if k)} }} }}",
    "80 free sizes in a chain of facts": f"kernel k({', '.join(f'A{k}: f32[N{k}]' for k in SIZES)}) "
    f"where {', '.join(f'N{k} <= N{k + 1}' for k in SIZES[:-1])} "
    f"{{ {' '.join(f'par N{k} x{k} {{ A{k + 1}[x{k}] = 1.0 }}' for k in SIZES[:-1])} }}",
    "seven coprime coefficients": f"kernel k(inout A: f32[{1 << 61}]) "
    f"{{ par {', '.join(f'1000 x{k}' for k in range(7))} {{ "
    + "; ".join(f"A[{' + '.join(f'x{k} * {f + n}' for k, f in enumerate(FACTORS))}] += 1.0" for n in range(8))
    + " } }",
    "eight moduli in one subscript": "kernel k(inout A: f32[100000]) { seq 100 i { par 100 j { A[(i + j * 24) % 29 + "
    "(i + j * 29) % 64 + (i + j * 15) % 51 + i / 56 + (i + j * 3) / 3 + (i + j * 6) % 58 + (i + j * 8) / 35 + "
    "(i + j * 31) / 87] += 1.0 } } }",
    "three coprime coefficients": "kernel k(inout A: f32[2305843009213693952]) "
    "{ par 1000 i, 1000 j, 1000 l { A[i * 1019146606 + j * 937988811 + l * 828068889] = 1.0 } }",
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_bomb_is_answered(name: str) -> None:
    load_everything()
    verdict = judge(KNOWN[name], "cpu", WIDE_SECONDS)
    assert verdict.answered, verdict


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=lambda k: KINDS[k].__name__)
def test_bombs_of_every_kind_are_answered(kind: int) -> None:
    load_everything()
    verdict = judge(brew(kind).text, "cuda:sm_90a", WIDE_SECONDS)
    assert verdict.answered, verdict
