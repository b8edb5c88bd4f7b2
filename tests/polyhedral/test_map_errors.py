"""Programs that cannot be mapped, each beside the text of its diagnostics in `tests/errors/`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from texpr.grammar.check.stage import check
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.text.parser import parse_text
from texpr.polyhedral.map.hardware_attributes import check_vectors
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.target import parse_target

ERRORS = Path(__file__).parent.parent / "errors"
NAMES = sorted(path.stem for path in ERRORS.glob("map_*.tex"))


@pytest.mark.parametrize("name", NAMES)
def test_the_diagnostics_say_what_is_wrong_and_a_way_round(name: str, golden: Callable[[str, str], None]) -> None:
    path = ERRORS / f"{name}.tex"
    kernel = check(parse_text(path.read_text(encoding="utf-8"), path.name))[0]
    with pytest.raises(TExprError) as caught:
        map_program(prove(build_program(kernel)), parse_target("cuda:sm_90a"))
    assert all(d.help for d in caught.value.diagnostics)
    golden(f"../errors/{name}.txt", f"{caught.value}\n")


def test_a_vector_of_another_file_at_the_same_place_is_not_taken_for_one_that_is_kept() -> None:
    text = "kernel k(A: f32[N], B: f32[N]) {{ par N {0} #vector(4) {{ B[{0}] = A[{0}] }} }}"
    (one,), (other,) = (check(parse_text(text.format(index), name))[0].body for index, name in (("i", "a"), ("j", "b")))
    check_vectors((one, other), {"i": 4, "j": 4})
    for kept in ("i", "j"):
        with pytest.raises(TExprError, match="E0402"):
            check_vectors((one, other), {kept: 4})
    with pytest.raises(TExprError) as both:
        check_vectors((one, other), {})
    assert len(both.value.diagnostics) == 2
