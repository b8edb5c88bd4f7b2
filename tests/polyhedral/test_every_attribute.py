"""Every attribute of the language, with a program in which it is obeyed, refused, or E0402.

The forms are those of the table in `docs/language.md`, so the marks there and the table of attributes stay true.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from attribute_programs import (
    COPY,
    EXPONENTIAL,
    FOLD,
    FULLY,
    LONG,
    MADD,
    MATMUL,
    PHASES,
    ROW_SUM,
    ROWS,
    SCALED,
    SCATTER,
    SHARED,
    SUM,
    WARPS,
    built,
    refusal,
)

from texpr.grammar.attributes import ATTRIBUTES, Construct

LANGUAGE = Path(__file__).parent.parent.parent / "docs" / "language.md"
SIGN = re.compile(r"#(\w+)(?:\([^)]*\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The attribute stands at `place`; `because` is in the mapping, text or manifest with it, and not without it."""

    place: Construct
    program: str
    because: str


KEPT: dict[str, tuple[Kept, ...]] = {
    "#grid": (Kept(place=Construct.PAR, program=COPY.replace("64 i", "64 i #grid"), because="grid (64, 1, 1)"),),
    "#block": (Kept(place=Construct.PAR, program=ROWS % ("", "#block"), because="grid (8, 1, 1)"),),
    "#thread": (Kept(place=Construct.PAR, program=ROWS % ("", "#thread"), because="par, in one thread"),),
    "#warp": (
        Kept(place=Construct.PAR, program=ROWS % ("", "#warp"), because="grid (8, 1, 1)"),
        Kept(place=Construct.PAR, program=WARPS % ("#block #warp", "#warp"), because="w_warp    warp % 4"),
        Kept(place=Construct.PAR, program=ROWS % ("#grid #warp", "#warp"), because="grid (8, 1, 1)  32 threads"),
    ),
    "#warpgroup": (
        Kept(place=Construct.PAR, program=ROWS % ("#grid #warpgroup", "#block"), because="128 threads"),
        Kept(place=Construct.PAR, program=WARPS % ("#block #warpgroup", ""), because="warp / 4 % 2"),
    ),
    "#cta": (Kept(place=Construct.PAR, program=COPY.replace("64 i", "64 i #grid #cta"), because="grid (64, 1, 1)"),),
    "#cluster": (
        Kept(place=Construct.PAR, program=WARPS % ("#cluster", ""), because="clusters of (4, 1, 1)"),
        Kept(place=Construct.PAR, program=ROWS % ("#cluster", "#block"), because="clusters of (8, 1, 1)"),
    ),
    "#persistent": (
        Kept(place=Construct.KERNEL, program=LONG % "#persistent", because="grid (min(ceildiv(N, 1024), 528), 1, 1)"),
    ),
    "#cooperative": (Kept(place=Construct.KERNEL, program=PHASES % "#cooperative", because="barrier (grid, met)"),),
    "#unroll": (
        Kept(place=Construct.PAR, program=ROWS % ("", "#thread #unroll"), because="unrolled"),
        Kept(place=Construct.SEQ, program=SUM % "#unroll", because="for k < 1024  (unrolled)"),
    ),
    "#unroll(n)": (
        Kept(place=Construct.PAR, program=ROWS % ("", "#thread #unroll(4)"), because="TX_UNROLL_BY(4)"),
        Kept(place=Construct.SEQ, program=SUM % "#unroll(4)", because="unrolled by 4"),
    ),
    "#tile(128, 128)": (Kept(place=Construct.PAR, program=SCALED % "#tile(8, 32)", because="8*i_block"),),
    "#tile(32)": (Kept(place=Construct.SEQ, program=FOLD % "#tile(32)", because="32 * k_tile + k_in_tile"),),
    "#tile(block: 128, 128, warp: 32, 64, thread: 8, 8)": (
        Kept(
            place=Construct.PAR,
            program=SCALED % "#tile(block: 8, 32, warp: 8, 8, thread: 1, 2)",
            because="j_vector  vector, 2 iterations",
        ),
    ),
    "#vector(n)": (
        Kept(place=Construct.PAR, program=ROWS % ("", "#vector(2)"), because="vector, 2 iterations"),
        Kept(place=Construct.SEQ, program=ROW_SUM % "#vector(2)", because="vector, 2 iterations"),
    ),
    "#stages(n)": (Kept(place=Construct.SEQ, program=FOLD % "#stages(3)", because="wait (cp_async, all but 2, done)"),),
    "#ordered": (Kept(place=Construct.SEQ, program=ROW_SUM % "#ordered", because="for k < 1024"),),
    "#align(n)": (
        Kept(
            place=Construct.PARAMETER,
            program=COPY.replace("A: f32[64]", "A: f32[64] #align(64)"),
            because='"align": 64',
        ),
        Kept(place=Construct.NEW, program=SHARED % "#align(512)", because="512"),
    ),
    "#strict": (
        Kept(place=Construct.STATEMENT, program=MADD % ("", "#strict"), because="strict_mul"),
        Kept(place=Construct.KERNEL, program=MADD % ("#strict", ""), because="strict_mul"),
    ),
    "#fast": (
        Kept(place=Construct.STATEMENT, program=EXPONENTIAL % ("", "#fast"), because="= tx::fast_exp("),
        Kept(place=Construct.KERNEL, program=EXPONENTIAL % ("#fast", ""), because="= tx::fast_exp("),
    ),
    "#tf32": (
        Kept(
            place=Construct.STATEMENT,
            program=(MATMUL % "").replace("k, j] }", "k, j] } #tf32"),
            because="contract<32>",
        ),
        Kept(place=Construct.KERNEL, program=MATMUL % "#tf32", because="contract<32>"),
    ),
    "#unique": (
        Kept(place=Construct.STATEMENT, program=SCATTER % ("", "#unique"), because="store_unique"),
        Kept(place=Construct.KERNEL, program=SCATTER % ("#unique", ""), because="store_unique"),
    ),
    "#threads(n)": (
        Kept(place=Construct.KERNEL, program=COPY.replace(") {", ") #threads(64) {"), because="64 threads"),
    ),
    "#blocks_per_sm(n)": (
        Kept(place=Construct.KERNEL, program=COPY.replace(") {", ") #blocks_per_sm(4) {"), because="(32, 4)"),
    ),
    "#cluster_shape(x, y, z)": (
        Kept(place=Construct.KERNEL, program=MATMUL % "#cluster_shape(2, 4)", because="__cluster_dims__(2, 4, 1)"),
    ),
    "#raster(n)": (Kept(place=Construct.KERNEL, program=MATMUL % "#raster(4)", because="tx::block_x() % 4"),),
    "#strides(s0, s1, …)": (
        Kept(place=Construct.PARAMETER, program=COPY.replace("]) {", "] #strides(2)) {"), because="strides (2)"),
        Kept(place=Construct.NEW, program=SHARED % "#strides(20, 1)", because="strides (20, 1)"),
    ),
    "#layout(col)": (
        Kept(
            place=Construct.PARAMETER,
            program=(ROWS % ("", "")).replace("64]) {", "64] #layout(col)) {"),
            because="strides (1, 8)",
        ),
        Kept(place=Construct.NEW, program=SHARED % "#layout(col)", because="strides (1, 4)"),
    ),
    "#pad": (Kept(place=Construct.NEW, program=SHARED % "#pad", because="strides (17, 1)"),),
    "#swizzle": (
        Kept(place=Construct.NEW, program=SHARED % "#swizzle", because="xor(bits 2, base 2, shift 3)"),
        Kept(place=Construct.NEW, program=SHARED % "#swizzle(2, 2, 4)", because="tx::swizzled<2, 0, 4>("),
    ),
}  # fmt: skip

CONTRADICTED: dict[str, tuple[str, ...]] = {
    "#tf32": ((MADD % ("#tf32", "")).replace("f32[", "f64["), (MADD % ("", "#tf32")).replace("f32[", "f64[")),
}

OF_HARDWARE_BODIES = ("#ptx(major, minor)", "#sm(80)")
NEVER = {
    "#vector(3)": ROWS % ("", "#vector(3)"),
    "#vector(128)": SUM % "#vector(128)",
    "#stages(17)": FOLD % "#stages(17)",
    "#unroll(5000)": SUM % "#unroll(5000)",
    "#threads(100)": COPY.replace(") {", ") #threads(100) {"),
    "#threads(2048)": COPY.replace(") {", ") #threads(2048) {"),
    "#cluster_shape(8, 4)": COPY.replace(") {", ") #cluster_shape(8, 4) {"),
    "#blocks_per_sm(64)": COPY.replace(") {", ") #blocks_per_sm(64) {"),
    "#swizzle(2)": SHARED % "#swizzle(2)",
    "#swizzle of half an element": SHARED % "#swizzle(2, 1, 3)",
    "#swizzle with #pad": SHARED % "#swizzle #pad",
    "#pad with #strides": SHARED % "#strides(20, 1) #pad",
    "#pad of one dimension": "kernel f(A: f32[8]) { par 8 i { new t: f32[4] #pad; t[0] = 1.0; A[i] = t[0] } }",
    "#align below the element": COPY.replace("A: f32[64]", "A: f32[64] #align(2)"),
    "#sm without a reference": "fn g(x: T) #sm(90) { return x }\n" + COPY,
    "an unknown one of a called fn": "fn g(x: T) #fats { return x }\n" + COPY.replace("= A[i]", "= g(A[i])"),
}
IDLE = {
    "#unique": (MADD % ("#unique", ""), MADD % ("", "#unique")),
    "#tf32": (MADD % ("#tf32", ""), MADD % ("", "#tf32")),
    "#fast": (COPY.replace(") {", ") #fast {"), MADD % ("", "#fast")),
    "#strict": (COPY.replace(") {", ") #strict {"), COPY.replace("= A[i]", "= A[i] #strict")),
    "#tile": (FOLD % "#tile(1)", FOLD % "#tile(64)"),
    "#stages": (FOLD % "#stages(1)",),
    "#ordered": ("kernel f(A: f32[64], C: f32[64]) { seq 64 i #ordered { C[i] = A[i] } }",),
    "#unroll": (COPY.replace("64 i", "64 i #unroll"), COPY.replace("64 i", "64 i #unroll(4)")),
    "#threads": ("kernel f(s: f32[1]) #threads(64) { s[0] = 1.0 }",),
    "#persistent": (
        COPY.replace(") {", ") #persistent {"),
        "kernel f(s: f32[1]) #persistent { s[0] = 1.0 }",
        "kernel f(C: f32[9]) #persistent { C[0] = 1.0; seq 8 k { C[k + 1] = C[k] } }",
        "kernel f(inout C: f32[9]) #persistent { seq 8 k { C[k + 1] = C[k] } }",
    ),
    "#cooperative": (
        COPY.replace(") {", ") #cooperative {"),
        "kernel f(A: f32[9000000], s: f32[1]) #cooperative { s[0] = sum 9000000 k { A[k] }; s[0] = s[0] + 1.0 }",
    ),
    "#raster": (COPY.replace(") {", ") #raster(8) {"), MATMUL % "#raster(1)"),
    "#cluster_shape": ("kernel f(s: f32[1]) #cluster_shape(2) { s[0] = 1.0 }",),
    "#blocks_per_sm": ("kernel f(s: f32[1]) #blocks_per_sm(4) { s[0] = 1.0 }",),
    "#pad": ("kernel f(A: f32[8]) { par 8 i { new t: f32[2, 2] #pad; t[0, 0] = 1.0; A[i] = t[0, 0] } }",),
    "#align": ("kernel f(A: f32[8]) { par 8 i { new t: f32 #align(64); t = 1.0; A[i] = t } }",),
    "#swizzle": (
        "kernel f(A: f32[8]) { par 8 i { new t: f32[2, 8] #swizzle; t[0, 0] = 1.0; A[i] = t[0, 0] } }",
        (SHARED % "#swizzle(3, 4, 3)").replace("shared t", "global t"),
    ),
}
IDLE_ON_A_CPU = {
    "#tile": SCALED % "#tile(8, 32)",
    "#fast": EXPONENTIAL % ("", "#fast"),
    "#threads": COPY.replace(") {", ") #threads(64) {"),
    "#cluster_shape": COPY.replace(") {", ") #cluster_shape(2) {"),
    "#raster": COPY.replace(") {", ") #raster(4) {"),
    "#blocks_per_sm": COPY.replace(") {", ") #blocks_per_sm(4) {"),
    "#persistent": LONG % "#persistent",
    "#cooperative": PHASES % "#cooperative",
    "#grid": ROW_SUM % "",
    "#cluster": ROWS % ("#cluster", ""),
    "#warp": ROWS % ("", "#warp"),
    "#warpgroup": WARPS % ("#block #warpgroup", ""),
    "#cta": ROWS % ("#grid #cta", ""),
    "#block": ROWS % ("", "#block"),
    "#thread": ROWS % ("", "#thread"),
    "#unroll": SUM % "#unroll",
    "#stages": SUM % "#stages(3)",
    "#swizzle": SHARED % "#swizzle",
}


def name_of(form: str) -> str:
    found = SIGN.fullmatch(form)
    assert found, form
    return found[1]


@pytest.mark.parametrize("form", KEPT)
def test_an_attribute_that_is_kept_changes_what_is_built(form: str) -> None:
    for case in KEPT[form]:
        assert case.because in built(case.program)
        scope = "#grid " if form == "#cta" else ""  # which says the same alone
        without = re.sub(rf"{scope}#{name_of(form)}(\([^)]*\))?", "", case.program)
        assert without != case.program
        if form == "#unique":
            assert refusal(without, "cuda-host:sm_90a", "prove") <= {"E0209", "E0301"}
        else:
            assert case.because not in built(without)


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cpu"])
@pytest.mark.parametrize("form", CONTRADICTED)
def test_an_attribute_that_contradicts_the_types_is_refused_on_every_target(form: str, target: str) -> None:
    for program in CONTRADICTED[form]:
        assert refusal(program, target, "map") == {"E0402"}


@pytest.mark.parametrize("what", NEVER)
def test_an_attribute_that_can_never_hold_is_refused_by_check(what: str) -> None:
    assert refusal(NEVER[what], "cuda:sm_90a", "prove") == {"E0205"}


@pytest.mark.parametrize("name", IDLE)
def test_the_report_says_which_attribute_changed_nothing(name: str) -> None:
    for program in IDLE[name]:
        assert f"note: `{name}` (line 1) changes nothing: " in built(program)
        without = re.sub(rf"{name}(\([^)]*\))?", "", program)
        assert "changes nothing" not in built(without)


@pytest.mark.parametrize("name", IDLE_ON_A_CPU)
def test_the_report_of_a_cpu_says_which_attribute_is_a_gpus(name: str) -> None:
    assert f"note: `{name}` (line 1) changes nothing: " in built(IDLE_ON_A_CPU[name], "cpu")


def test_no_attribute_stands_on_a_fully_par_that_is_mapped() -> None:
    for name, spec in ATTRIBUTES.items():
        if Construct.FULLY in spec.on and name not in ("warpgroup", "cta"):
            sign = f"#{name}" + ("(4)" if spec.least else "")
            assert refusal(FULLY % sign, "cpu", "map") == {"E0502"}


def test_unique_on_an_affine_update_does_not_take_its_atomic_away() -> None:
    program = "kernel f(A: f32[64], C: f32[8]) { par 64 i { C[i / 8] += A[i] #unique } }"
    assert "(atomic)" in built(program)


def test_the_cases_cover_every_attribute_at_every_place() -> None:
    assert {name_of(form) for form in (*KEPT, *OF_HARDWARE_BODIES)} == set(ATTRIBUTES)
    for form in KEPT:
        spec = ATTRIBUTES[name_of(form)]
        same = (case for other, cases in KEPT.items() if name_of(other) == name_of(form) for case in cases)
        assert {case.place for case in same} == set(spec.mapped), form
        assert not set(spec.on) - set(spec.mapped) - {Construct.FULLY}, form


def test_the_table_of_the_language_has_every_attribute() -> None:
    """All forms in `docs/language.md` are kept, or belong to hardware bodies."""
    table = LANGUAGE.read_text(encoding="utf-8").split("| attribute | on | meaning |")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    cells = [re.sub(r"\(and [^)]*\)", "", cell) for cell in cells]
    shown = [form for cell in cells for form in re.findall(r"`(#[^`]+)`", cell)]
    assert set(shown) == {*KEPT, *OF_HARDWARE_BODIES}
    assert len(shown) == len(set(shown))
