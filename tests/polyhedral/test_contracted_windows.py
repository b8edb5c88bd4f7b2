"""Convolutions are sums of products in tiles: pixels are one side, the window is part of what is summed."""

import re
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stages import mapped, proved
from test_contracted import choice, ptxas_says
from test_map_programs import arguments

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.host_run import HostModule
from texpr.codegen.plan import plan
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.candidate_json import choices_json, read_choices
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

SM90 = parse_target("cuda:sm_90a")
PLAIN = """kernel k(X: f32[N, C, H + 2, W + 2], F: f32[O, C, 3, 3], Y: f32[N, O, H, W]) {
    par N n, O o, H h, W w { Y[n, o, h, w] = sum C c, 3 r, 3 s { X[n, c, h + r, w + s] * F[o, c, r, s] } }
}"""
LAST = """kernel k(X: f32[N, H + 2, W + 2, C], F: f32[3, 3, C, O], inout Y: f32[N, H, W, O]) {
    par N n, H h, W w, O o { Y[n, h, w, o] += sum 3 r, 3 s, C c { X[n, h + r, w + s, c] * F[r, s, c, o] } }
}"""
GROUPED = """kernel k(X: f32[N, G, C, H + 1, W + 1], F: f32[G, O, C, 2], b: f32[G, O], Y: f32[N, G, O, H, W]) {
    par N n, G g, O o, H h, W w {
        new s: f32
        s = 0
        seq C c, 2 r { s += X[n, g, c, h + r, w + r] * F[g, o, c, r] }
        Y[n, g, o, h, w] = max(s + b[g, o], 0.0)
    }
}"""
HALF = """kernel k(X: f16[N, C, W], F: f16[O, C, 4], Y: f16[N, O, W]) {
    par N n, O o, W w {
        Y[n, o, w] = f16(sum C c, 4 s {
            select(w + s >= 2 and w + s < W + 2, f32(X[n, c, w + s - 2]), 0.0) * f32(F[o, c, s])
        })
    }
}"""

PHASES = """kernel k(X: f32[N, C, W], F: f32[C, O, 4], Y: f32[N, O, 2 * W]) {
    par N n, O o, W w, 2 p {
        Y[n, o, 2 * w + p] = sum C c, 2 s {
            select(w + (p + 1) / 2 >= s and w + (p + 1) / 2 - s < W, X[n, c, w + (p + 1) / 2 - s], 0.0)
                * F[c, o, 2 * s + (p + 1) % 2]
        }
    }
}"""


@dataclass(frozen=True)
class Conv:
    """A convolution with a window, strides, paddings before and after, and dilations for each dimension of images."""

    window: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    image: tuple[int, ...]

    @property
    def out(self) -> tuple[int, ...]:
        reach = ((d * (k - 1) + 1) for k, d in zip(self.window, self.dilation, strict=True))
        every = zip(self.image, self.before, self.after, reach, self.stride, strict=True)
        return tuple((n + b + a - k) // s + 1 for n, b, a, k, s in every)

    @property
    def text(self) -> str:
        dims = range(len(self.window))
        at = [f"{self.stride[d]} * y{d} + {self.dilation[d]} * r{d}" for d in dims]
        inside = " and ".join(
            f"{at[d]} >= {self.before[d]} and {at[d]} < {self.image[d] + self.before[d]}" for d in dims
        )
        places = ", ".join(f"{at[d]} - {self.before[d]}" for d in dims)
        window, out = (", ".join(map(str, n)) for n in (self.window, self.out))
        ys, rs = (", ".join(f"{word}{d}" for d in dims) for word in "yr")
        image = ", ".join(map(str, self.image))
        return f"""kernel k(X: f32[N, C, {image}], F: f32[O, C, {window}], Y: f32[N, O, {out}]) {{
    par N n, O o, {", ".join(f"{n} y{d}" for d, n in zip(dims, self.out, strict=True))} {{
        Y[n, o, {ys}] = sum C c, {", ".join(f"{n} r{d}" for d, n in zip(dims, self.window, strict=True))} {{
            select({inside}, X[n, c, {places}], 0.0) * F[o, c, {rs}]
        }}
    }}
}}"""


def conv(window: Any, image: Any, *, stride: Any = 1, before: Any = 0, after: Any = 0, dilation: Any = 1) -> str:
    def each(value: Any) -> tuple[int, ...]:
        return value if isinstance(value, tuple) else (value,) * len(window)

    return Conv(window, each(stride), each(before), each(after), each(dilation), image).text


SAME: list[tuple[str, dict[str, int], dict[str, tuple[str, ...]]]] = [
    (PLAIN, {"N": 2, "C": 3, "O": 65, "H": 5, "W": 13}, {"w": ("h",)}),
    (PLAIN, {"N": 3, "C": 2, "O": 64, "H": 7, "W": 8}, {"w": ("n", "h")}),
    (PLAIN, {"N": 1, "C": 2, "O": 64, "H": 1, "W": 128}, {}),
    (LAST, {"N": 1, "C": 4, "O": 64, "H": 9, "W": 11}, {"w": ("h",)}),
    (LAST, {"N": 2, "C": 16, "O": 64, "H": 5, "W": 8}, {"w": ("n", "h")}),
    (GROUPED, {"N": 2, "G": 2, "C": 9, "O": 64, "H": 7, "W": 11}, {"w": ("h",)}),
    (HALF, {"N": 9, "C": 5, "O": 64, "W": 19}, {"w": ("n",)}),
    (PHASES, {"N": 11, "C": 9, "O": 64, "W": 7}, {"w": ("n",)}),
    (conv((3, 3), (9, 8), before=1, after=1), {"N": 1, "C": 2, "O": 66}, {"y1": ("y0",)}),
    (conv((3, 2), (21, 20), stride=(3, 2), before=1, dilation=(2, 1)), {"N": 2, "C": 3, "O": 64}, {"y1": ("n", "y0")}),
    (conv((2, 1), (16, 40), stride=(3, 4)), {"N": 2, "C": 9, "O": 64}, {"y1": ("n", "y0")}),
    (conv((7, 7), (3, 4), before=4, after=(5, 3)), {"N": 3, "C": 1, "O": 64}, {"y1": ("n", "y0")}),
    (conv((3, 2), (9, 8), before=1, after=1), {"N": 1, "C": 32, "O": 66}, {"y1": ("y0",)}),
    (conv((3,), (70,), before=1, after=1), {"N": 1, "C": 7, "O": 64}, {}),
    (conv((2, 2, 2), (5, 6, 5), before=(0, 1, 0), after=1), {"N": 1, "C": 3, "O": 64}, {"y2": ("y0", "y1")}),
]


def same(program: MappedProgram, sizes: dict[str, int]) -> None:
    arrays = arguments(program.kernel, sizes)
    expected = interpret(program.kernel, arrays, sizes=sizes).outputs["Y"]
    np.testing.assert_array_equal(simulate(program, arrays, sizes=sizes)["Y"], expected)


@pytest.mark.parametrize(("text", "sizes", "joined"), SAME)
def test_convolutions_run_in_tiles_of_pixels_and_compute_the_same(
    text: str, sizes: dict[str, int], joined: dict[str, tuple[str, ...]]
) -> None:
    program = mapped(text, **sizes)
    found = choice(program)
    assert found is not None and {side: outer for side, outer in found.joined.items() if outer} == joined
    same(program, {})


@pytest.mark.gxx
def test_convolutions_run_on_the_cpu_as_emitted() -> None:
    kept: list[tuple[Emitted, MappedProgram]] = []
    for number, (text, sizes, _) in enumerate(SAME[::3]):
        program = mapped(text.replace("kernel k", f"kernel k{number}", 1), **sizes)
        kept.append((Emitted(program), program))
    module = HostModule("\n".join(emitted.source for emitted, _ in kept), werror=True)
    for emitted, program in kept:
        arrays = arguments(program.kernel, {})
        expected = interpret(program.kernel, {n: a.copy() for n, a in arrays.items()}).outputs["Y"]
        assert emitted.run(module, arrays) is None
        np.testing.assert_array_equal(arrays["Y"], expected)


@pytest.mark.parametrize(("images", "channels"), [(0, 4), (1, 4), (7, 3), (2, 0)])
def test_convolutions_of_free_counts_compute_the_same(images: int, channels: int) -> None:
    text = conv((3, 3), (6, 5), before=1, after=1)
    program = mapped(text, O=64)
    found = choice(program)
    assert found is not None and found.joined == {"y1": ("n", "y0")}
    same(program, {"N": images, "C": channels})


def test_a_window_of_one_pixel_is_brought_four_elements_at_a_time() -> None:
    pointwise = PLAIN.replace("H + 2, W + 2", "H, W").replace("3, 3]", "1, 1]").replace("3 r, 3 s", "1 r, 1 s")
    program = mapped(pointwise, N=2, C=32, O=64, H=8, W=8)
    text = emit_cuda(plan(program), program.target).source
    assert "tx::load<4>(X, " in text and "tx::load<4>(F, " in text and "tx::load<1>" not in text
    same(program, {})


def test_tiles_run_along_the_side_whose_results_lie_nearest_one_another() -> None:
    found = choice(mapped(PHASES, N=11, C=9, O=64, W=7))  # of a pixel's neighbours each second one
    assert found is not None and found.along == "w"


def test_what_is_outside_an_image_is_zero_times_its_weight() -> None:
    program = mapped(conv((3,), (66,), before=1, after=1), N=1, C=6, O=64)
    assert choice(program) is not None
    arrays = arguments(program.kernel, {})
    arrays["F"][5, 2, 0] = np.inf
    expected = interpret(program.kernel, arrays).outputs["Y"]
    assert np.isnan(expected[0, 5, 0]) and not np.isnan(expected[0, 4]).any()
    np.testing.assert_array_equal(simulate(program, arrays)["Y"], expected)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """A convolution of one or two dimensions, whose windows may be larger than the image, or further apart."""
    dims = draw(st.integers(1, 2))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(dims))

    window, image, before = each(1, 3), each(1, 4), each(0, 2)
    after = tuple(draw(st.integers(0, 1)) + 2 * (window[d] - 1) for d in range(dims))
    text = conv(window, image, stride=each(1, 5), before=before, after=after, dilation=each(1, 2))
    return text, {"N": 64, "C": 16, "O": draw(st.sampled_from([128, 130]))}


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(convolutions())
def test_random_convolutions_compute_what_the_interpreter_computes(case: tuple[str, dict[str, int]]) -> None:
    text, sizes = case
    program = mapped(text, **sizes)
    assert choice(program) is not None
    same(program, {})


def test_depthwise_convolutions_have_no_products_to_share() -> None:
    text = """kernel k(X: f32[N, C, H + 2, W + 2], F: f32[C, 3, 3], Y: f32[N, C, H, W]) {
        par N n, C c, H h, W w { Y[n, c, h, w] = sum 3 r, 3 s { X[n, c, h + r, w + s] * F[c, r, s] } }
    }"""
    assert choice(mapped(text, N=8, C=64, H=56, W=56)) is None


def test_a_mapping_may_join_other_indices() -> None:
    sizes = {"N": 2, "C": 3, "O": 65, "H": 5, "W": 13}
    found = choice(mapped(PLAIN, **sizes))
    assert found is not None and found.joined == {"w": ("h",)}
    joined = replace(found, joined={"w": ("n", "h")}, grid=("w", "o"))
    program = mapped(PLAIN, choices=Candidate(launches={"k_0": joined}), **sizes)
    assert read_choices(choices_json(program.candidate)) == program.candidate
    same(program, {})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"joined": {"w": ("n",)}}, "`joined`: w, o are no sides of a sum of products with what is to be joined"),
        ({"joined": {"w": ("o",)}}, "`joined`: w, o are no sides"),
        ({"joined": {"w": ("h",), "n": ("o",)}}, "`along` and `across`: w, o are no sides"),
        ({"joined": {"w": ("n", "h")}}, "`grid` orders w, o, n; the band has o, w"),
    ],
)
def test_indices_that_cannot_be_joined_are_refused_with_the_reason(changes: dict[str, Any], said: str) -> None:
    sizes = {"N": 2, "C": 3, "O": 65, "H": 5, "W": 13}
    found = choice(mapped(PLAIN, **sizes))
    assert found is not None
    wrong = Candidate(launches={"k_0": replace(found, **changes)})
    with pytest.raises(TExprError, match=said) as refused:
        map_program(proved(PLAIN, **sizes), SM90, choices=wrong)
    assert [d.code for d in refused.value.diagnostics] == ["E0401"]


@pytest.mark.nvcc
@pytest.mark.parametrize(("image", "around", "count"), [(56, 1, 256), (58, 0, 64)])
def test_a_convolution_keeps_its_sums_in_registers(image: int, around: int, count: int, tmp_path: Path) -> None:
    text = conv((3, 3), (image, image), before=around, after=around)
    assert "0 bytes spill stores" in ptxas_says(mapped(text, N=32, C=count, O=count), tmp_path)


def test_the_tiles_of_a_convolution_fill_the_multiprocessors_a_whole_number_of_times() -> None:
    found = choice(mapped(conv((3, 3), (30, 30)), N=32, C=256, O=256))
    assert found is not None and found.resident
    tiles = 32 * 28 * 28 // found.tile["y1"] * 256 // found.tile["o"] * found.parts
    times = tiles / (SM90.multiprocessors * found.resident)
    assert ceil(times) / times < 1.05


@pytest.mark.parametrize(("channels", "asked_again"), [(256, False), (250, True)])
def test_where_a_window_lies_is_asked_once_for_a_step_of_channels(channels: int, asked_again: bool) -> None:
    program = mapped(conv((3, 3), (56, 56), before=1, after=1), N=32, C=channels, O=256)
    lines = emit_cuda(plan(program), program.target).source.splitlines()
    loads = [line for line in lines if "tx::load_exactly<1>(X, " in line]
    assert loads and not any("tx::fill(X_next" in line for line in lines)
    assert any(re.search(r"_round\w*\) [/%]", line) for line in loads) == asked_again
