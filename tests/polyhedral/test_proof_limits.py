"""What is too large to be proved is E0307, whatever its form; E0308 is for forms that no bound size makes smaller."""

import pytest

import texpr

PRIMES = (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079, 10091, 10093)
MODULI = " + ".join(f"(i % {p}) + (i / {p + 2})" for p in PRIMES)
LARGE = f"{2**40} * {2**40}"
LIMITS = {
    "a subscript": f"kernel k(inout A: f32[100000000]) {{ par N i {{ A[{MODULI}] = 1.0 }} }}",
    "a subscript of a bare program": f"par N i {{ A[{MODULI}] = 1.0 }}",
    "a condition": f"kernel k(inout A: f32[N]) {{ par N i {{ if {MODULI} > 5 {{ A[i] = 1.0 }} }} }}",
    "a select": f"kernel k(A: f32[N]) {{ par N i {{ A[i] = select({MODULI} > 5, 1.0, 2.0) }} }}",
    "an extent": f"kernel k(inout A: f32[N]) {{ par N i {{ seq {MODULI} j {{ A[i] += 1.0 }} }} }}",
    "a shape": f"kernel k(inout A: f32[{MODULI.replace('i', 'N')}]) {{ par N i {{ A[0] += 1.0 }} }}",
    "large numbers": f"kernel k(inout A: f32[N]) {{ par N i {{ A[i * {LARGE}] = 1.0 }} }}",
    "a product of two": "kernel k(A: f32[3], B: f32[4]) { par 4 i { B[i] = A[i * 2000000000 * 2000000000 % 3] } }",
    "a product of sizes": "size M = 2000000000\n"
    "kernel k(A: f32[3], B: f32[4]) { par 4 i { B[i] = A[i * M * M * 3 % 3] } }",
    "a loop over a free size": "kernel k(A: f32[3], B: f32[N]) {\npar N i { B[i] = A[i * 4000000000000000000 % 3] } }",
    "long loops": "kernel k(inout A: f32[3]) {\n"
    "par 1048576 i { seq i * 1048576 j { seq 1 l { A[j * 67108864 % 3] += 1.0 } } } }",
    "many accesses": f"kernel k(inout A: f32[N]) {{ par N i {{ {'; '.join(['A[i] += 1.0'] * 3001)} }} }}",
    "many loops": "kernel k(inout A: f32[N]) {"
    + "".join(f"par 2 a{n} {{ " for n in range(25))
    + "A[0] += 1.0"
    + "}" * 26,
}
FORMS = {
    "a quotient by a free size": "kernel k(inout A: f32[N]) { par N i { A[i / N] += 1.0 } }",
    "a product with a free size": "kernel k(A: f32[N, M]) {\n"
    "par N i, M j { A[i, j] = 1.0; if i * M + j > 5 { A[i, j] = 2.0 } } }",
}


def codes_of(text: str) -> set[str]:
    with pytest.raises(texpr.TExprError) as refused:
        texpr.parse(text).only.compile("cpu", stop_after="prove")
    assert all(d.help for d in refused.value.diagnostics)
    return {d.code for d in refused.value.diagnostics}


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_beyond_a_counted_limit_says_so(name: str) -> None:
    assert codes_of(LIMITS[name]) == {"E0307"}


@pytest.mark.parametrize("name", FORMS)
def test_what_is_not_quasi_affine_says_so(name: str) -> None:
    assert codes_of(FORMS[name]) == {"E0308"}
