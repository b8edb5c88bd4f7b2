"""Windows over images on tensor cores: rows of tiles are boxes of images, a step is a place of the window; what boxes
do not do stays with other forms."""

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.grammar.ast import Par
from texpr.grammar.index.expr import add, const, constant_value
from texpr.grammar.index.value import index_value as evaluated
from texpr.polyhedral.map.piped import REGISTERS
from texpr.polyhedral.map.row_boxes import RowBoxes, best_sizes
from texpr.polyhedral.map.tile_rows import Corner, TileRows
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.candidate_json import choices_json, read_choices
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.names import Names
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate

INSIDE = "h + r >= 1 and h + r < 57 and w + s >= 1 and w + s < 57"
AT = "X[n, h + r - 1, w + s - 1, c]"
HEAD = "X: bf16[4, 56, 56, 64], F: bf16[3, 3, 64, 64], b: bf16[64], Y: bf16[4, 56, 56, 64]"
WIDE = HEAD.replace("56, 56, 64], F", "60, 60, 64], F")


def summed(element: str, factor: str = "F[r, s, c, o]") -> str:
    return f"sum 3 r, 3 s, 64 c {{ {element} * {factor} }}"


def padded(inside: str = INSIDE, element: str = AT, zero: str = "0.0") -> str:
    return summed(f"select({inside}, {element}, {zero})")


def first_form(body: str, head: str = HEAD, pars: str = "4 n, 56 h, 56 w, 64 o") -> Any:
    kernel = texpr.parse(f"kernel g({head}) {{ par {pars} {{ {body} }} }}").only
    return kernel.compile("cuda:sm_90a", stop_after="map").mapping.candidate.launches["g_0"]


PIPED = {
    "padded": (f"Y[n, h, w, o] = {padded()}", HEAD),
    "where not": (f"Y[n, h, w, o] = {summed(f'select(not ({INSIDE}), 0.0, {AT})')}", HEAD),
    "plain": (f"Y[n, h, w, o] = {summed('X[n, h + r, w + s, c]')}", WIDE),
    "dilated, turned": (f"Y[n, h, w, o] = {summed('X[n, h + 2 * r, w - s + 2, c]')}", WIDE),
    "filters first": (
        f"Y[n, h, w, o] = {padded()}".replace("F[r, s, c, o]", "F[o, r, s, c]"),
        HEAD.replace("3, 3, 64, 64", "64, 3, 3, 64"),
    ),
    "bias": (f"let t = {padded()}; Y[n, h, w, o] = max(t + f32(b[o]), 0.0)", HEAD),
    "channels first": (f"Y[n, o, h, w] = {padded()}", HEAD.replace("Y: bf16[4, 56, 56, 64]", "Y: bf16[4, 64, 56, 56]")),
}  # fmt: skip


@pytest.mark.parametrize("name", PIPED)
def test_a_window_over_images_goes_to_the_tensor_cores(name: str) -> None:
    found = first_form(*PIPED[name])
    assert isinstance(found, Piped) and found.box == {"n": 1, "h": 8, "w": 8}


OTHERS = {
    "a row of the image is left out": f"Y[n, h, w, o] = {padded(INSIDE.replace('h + r >= 1', 'h + r >= 2'))}",
    "channels are left out": f"Y[n, h, w, o] = {padded(INSIDE + ' and c < 60')}",
    "filters are left out": f"Y[n, h, w, o] = {padded(INSIDE + ' and o < 60')}",
    "ones around the image": f"Y[n, h, w, o] = {padded(zero='1.0')}",
    "negative zeros": f"Y[n, h, w, o] = {padded(zero='-0.0')}",
    "mirrored rows": f"Y[n, h, w, o] = {padded(INSIDE, 'X[n, 56 - h - r, w + s - 1, c]')}",
    "an index twice": f"Y[n, h, w, o] = {padded('w + s - h < 57 and w + s >= h + 1', 'X[n, h, w + s - h - 1, c]')}",
    "channels of a filter apart": f"Y[n, h, w, o] = {padded()}".replace("F[r, s, c, o]", "F[r, s, o, 63 - c]"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_boxes_do_not_do_stays_with_other_forms(name: str) -> None:
    assert not isinstance(first_form(OTHERS[name]), Piped)


def test_steps_of_two_and_parts_of_channels_stay_there_too() -> None:
    strided = f"Y[n, h, w, o] = {summed('X[n, 2 * h + r, 2 * w + s, c]')}"
    assert not isinstance(first_form(strided, WIDE, "4 n, 28 h, 28 w, 64 o"), Piped)
    part = f"Y[n, h, w, o] = {summed('X[n, h + r, w + s, c]')}".replace("64 c", "60 c")
    assert not isinstance(first_form(part, WIDE), Piped)


def test_boxes_go_the_least_beyond_images() -> None:
    wanted = {(32, 56, 56): (1, 8, 8), (32, 28, 28): (4, 4, 4), (64, 7, 7): (64, 1, 1), (4, 4096): (1, 64)}
    assert {extents: best_sizes(extents) for extents in wanted} == wanted


RAGGED = """kernel g(
    X: {dtype}[{n}, {h}, {w}, {c}], F: {dtype}[3, 2, {c}, {o}], b: f32[{o}], Y: {dtype}[{n}, {h}, {w}, {o}]
) {{
    par {n} n, {h} h, {w} w, {o} o {{
        {bind} sum 3 r, 2 s, {c} c {{
            select(h + r >= 1 and h + r <= {h} and w + s >= 1, X[n, h + r - 1, w + s - 1, c], 0.0) * F[r, s, c, o]
        }}{then}
    }}
}}"""
TYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def ragged(bias: bool = False, dtype: str = "bf16", **sizes: int) -> str:
    bind, then = ("let t =", "; Y[n, h, w, o] = t + b[o]") if bias else ("Y[n, h, w, o] =", "")
    return RAGGED.format(dtype=dtype, bind=bind, then=then, **sizes)


def piped(groups: int, columns: int, box: dict[str, int], **how: Any) -> Candidate:
    given = {"stages": 2, "persistent": 2, **how}
    own = Piped(along="o", across="w", tile={"w": 64 * groups, "o": columns}, box=box, **given)
    return Candidate(launches={"g_0": own})


def wanted(values: dict[str, Any], bias: bool) -> Any:
    x = np.pad(values["X"].astype(float), ((0, 0), (1, 1), (1, 0), (0, 0)))
    f, (_, h, w, _) = values["F"].astype(float), values["Y"].shape
    parts = (np.einsum("nhwc,co->nhwo", x[:, r : r + h, s : s + w], f[r, s]) for r in range(3) for s in range(2))
    return sum(parts) + (values["b"] if bias else 0)


def arguments(dtype: str, **sizes: int) -> dict[str, Any]:
    n, h, w, c, o = (sizes[name] for name in "nhwco")
    random, kind = np.random.default_rng(5), TYPES[dtype]
    x, f = (random.integers(-2, 3, shape).astype(kind) for shape in ((n, h, w, c), (3, 2, c, o)))
    return {
        "X": x,
        "F": f,
        "b": random.integers(-2, 3, o).astype("f4"),
        "Y": np.full((n, h, w, o), np.nan).astype(kind),
    }


SMALL = {"n": 3, "h": 3, "w": 7, "c": 24, "o": 40}
FORMS = {
    "images": (True, piped(3, 32, {"n": 1, "h": 8, "w": 8}, memory={"t": Memory.REG})),
    "lines": (False, piped(1, 64, {"n": 2, "h": 1, "w": 32}, cluster=2)),
}


@pytest.mark.parametrize("form", FORMS)
def test_ragged_images_are_right_in_the_simulator_and_their_syncs_are_enough(form: str) -> None:
    (bias, how), values = FORMS[form], arguments("bf16", **SMALL)
    kernel = texpr.parse(ragged(bias, **SMALL)).only
    program = kernel.compile("cuda:sm_90a", stop_after="map", mapping=how).mapping.program
    got = simulate(program, values)["Y"]
    assert np.array_equal(got, wanted(values, bias).astype(got.dtype))
    assert faults(shortened(program), {}) == ()


@pytest.mark.gxx
def test_the_text_of_a_window_is_right_on_the_cpu() -> None:
    sizes = {**SMALL, "o": 8}
    values, how = arguments("f16", **sizes), piped(1, 32, {"n": 2, "h": 4, "w": 8})
    compiled = texpr.parse(ragged(dtype="f16", **sizes)).only.compile("cuda-host:sm_90a", mapping=how)
    compiled(**values)
    assert np.array_equal(values["Y"], wanted(values, bias=False).astype(np.float16))


def test_the_places_of_a_window_are_steps_and_its_rows_boxes() -> None:
    kernel = texpr.parse(f"kernel g({HEAD}) {{ par 4 n, 56 h, 56 w, 64 o {{ Y[n, h, w, o] = {padded()} }} }}").only
    found = str(kernel.compile("cuda:sm_90a", stop_after="map").mapping)
    for line in (
        "r = c_step / 3",
        "s = c_step % 3",
        "from X[n_first_1, h_first_1 + h_row_1 + r - 1, w_first_1 + w_row_1 + s - 1, y]",
        "copy Y[n_first, h_first + 2 * warp + h_row, w_first + w_row, o_tile + 64 * chunk + y]",
    ):
        assert line in found


REFUSED = (
    (piped(2, 64, {}), "`box` gives the sizes of boxes of n, h, w"),
    (piped(2, 64, {"n": 1, "h": 8, "w": 4}), "`box`: powers of two, 64 rows together"),
    (piped(5, 64, {"n": 1, "h": 8, "w": 8}), "`tile`: multiples of 64 rows up to 256"),
    (piped(3, 192, {"n": 1, "h": 8, "w": 8}), "`tile`: multiples of 64 rows up to 128"),
)


@pytest.mark.parametrize(("how", "said"), REFUSED, ids=lambda value: str(value)[:16])
def test_boxes_that_do_not_fit_are_refused(how: Candidate, said: str) -> None:
    with pytest.raises(texpr.TExprError) as caught:
        texpr.parse(ragged(**SMALL)).only.compile("cuda:sm_90a", stop_after="map", mapping=how)
    (told,) = caught.value.diagnostics
    assert told.code == "E0401" and said in told.message


def test_a_choice_of_boxes_is_read_as_it_was_written() -> None:
    own = FORMS["images"][1]
    assert read_choices(choices_json(own)) == own


sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "properties"))


@pytest.mark.parametrize("seed", [1, 12])
def test_random_windows_agree_with_the_interpreter(seed: int) -> None:
    from windows import outcome

    assert outcome(seed) == "right"


@pytest.mark.parametrize("groups", REGISTERS)
def test_warpgroups_share_no_more_registers_than_a_block_begins_with(groups: int) -> None:
    threads, (few, many) = 128 * (1 + groups), REGISTERS[groups]
    begin = 65536 // threads // 8 * 8  # what the compiler gives each thread of such a block at most
    assert 128 * few + 128 * groups * many <= begin * threads and few % 8 == many % 8 == 0


@pytest.mark.parametrize("sizes", [(2, 8, 4), (64, 1, 1), (1, 2, 32), (1, 64, 1), (4, 1, 16)])
def test_every_row_is_in_one_box_and_each_warp_has_the_rows_that_it_sends(sizes: tuple[int, ...]) -> None:
    extents = (3, 5, 11)
    loops = tuple(
        Par(index=name, source_name=name, extent=const(n), band=0, body=())
        for name, n in zip("nhw", extents, strict=True)
    )
    boxes = RowBoxes(loops=loops, sizes=sizes)
    rows = TileRows(product=None, boxes=boxes, groups=1)  # type: ignore[arg-type]  # its boxes are all that is asked
    over, number, behind = rows.box(Names(()), "x", 16)
    found: list[tuple[int, ...]] = []
    for box in range(constant_value(boxes.total) or 0):
        first = {name: const(evaluated(at, {})) for name, at in boxes.corner(const(box)).items()}
        corner = Corner(first=first, behind=const(0))
        places = (rows.at(corner, const(row // 16), 16, const(row % 16)).values() for row in range(64))
        own = [tuple(evaluated(at, {}) for at in place) for place in places]
        for warp in range(4):
            begin = rows.first_of(corner, const(warp), 16)
            for place in np.ndindex(*(constant_value(n) or 0 for _, n in over)):
                names = {name: at for (name, _), at in zip(over, place, strict=True)}
                sent = tuple(evaluated(add(begin[name], behind[name]), names) for name in "nhw")
                assert sent == own[16 * warp + evaluated(number, names)]
        found += [at for at in own if all(value < n for value, n in zip(at, extents, strict=True))]
    assert sorted(found) == list(np.ndindex(*extents))
