"""`texpr verify` believes no mapping's JSON: edited, cut off and foreign files are refused or refuted."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import texpr
from texpr.cli import guarded, run_command
from texpr.mapping_json import mapping_json, mapping_text
from texpr.polyhedral.mapped.candidate import Candidate, Parted
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.verify.stage import Finding, Verdict, verify

TEXT = """kernel k(A: f32[M, N], B: f32[N, M], s: f32[M]) where N >= 1 {
    par M i, N j { B[j, i] = A[i, j] }
    par M r { s[r] = A[r, 0] + A[r, N - 1] }
}
"""


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    compiled = texpr.parse(TEXT).only.compile("cuda:sm_90a", hints={"M": 100, "N": 77}, stop_after="map")
    return mapping_json(compiled.mapping.program)


def texts(found: list[Finding], verdict: Verdict) -> str:
    return "\n".join(f.text for f in found if f.verdict is verdict)


def test_a_mapping_proves_its_digits_iterations_stores_and_sectors(data: dict[str, Any]) -> None:
    found = verify(data)
    assert not texts(found, Verdict.REFUTED)
    assert {f.about for f in found if f.verdict is Verdict.PROVED} >= {"theta", "iterations", "stores", "d", "sectors"}
    assert "B: each of 7700" in texts(found, Verdict.PROVED)


@pytest.mark.parametrize(
    "sizes", [{"M": 0, "N": 5}, {"M": 1, "N": 1}, {"M": 37, "N": 101}, {"M": 256, "N": 64}], ids=str
)
def test_other_sizes_are_covered_too(data: dict[str, Any], sizes: dict[str, int]) -> None:
    found = verify(data, sizes)
    assert not texts(found, Verdict.REFUTED) and "B: each of" in texts(found, Verdict.PROVED)


def nodes(value: Any, kind: str) -> list[dict[str, Any]]:
    """Every record of a kind."""
    if isinstance(value, dict):
        own = [value] if value.get("kind") == kind else []
        return own + [node for item in value.values() for node in nodes(item, kind)]
    return [node for item in value for node in nodes(item, kind)] if isinstance(value, list) else []


def more_weight(data: dict[str, Any]) -> None:
    for define in nodes(data["host"], "Define"):
        for digit in define["digits"][-1:]:
            digit["weight"] *= 2


def lost_guard(data: dict[str, Any]) -> None:
    for guard in nodes(data["host"], "Guard"):
        if guard["padding"]:
            guard["condition"]["tree"] = ["true"]


def guard_off_by_one(data: dict[str, Any]) -> None:
    for guard in nodes(data["host"], "Guard"):
        if guard["padding"]:
            guard["condition"]["tree"] = ["and", guard["condition"]["tree"], ["<", 1, 0]]


def fewer_blocks(data: dict[str, Any]) -> None:
    for launch in nodes(data["host"], "Launch"):
        launch["grid"][0] = {"text": "1", "tree": 1}


def more_threads(data: dict[str, Any]) -> None:
    for launch in nodes(data["host"], "Launch"):
        launch["threads"] = launch["threads"] * 2 if launch["threads"] <= 512 else 32


def lower_d(data: dict[str, Any]) -> None:
    next(e for e in data["accesses"] if e["d"])["d"] -= 1


def fewer_sectors(data: dict[str, Any]) -> None:
    next(e for e in data["accesses"] if e["samples"])["samples"][0]["parts"] -= 1


def better_mean(data: dict[str, Any]) -> None:
    next(e for e in data["accesses"] if e["samples"])["per_request"] /= 2


def other_layout(data: dict[str, Any]) -> None:
    data["buffers"]["A"]["layout"]["terms"][0]["stride"] = {"text": "1", "tree": 1}


def other_access(data: dict[str, Any]) -> None:
    data["accesses"][0]["path"] = [0]


@pytest.mark.parametrize(
    "edit",
    [more_weight, lost_guard, guard_off_by_one, fewer_blocks, more_threads, lower_d, fewer_sectors, better_mean,
     other_layout, other_access],
)  # fmt: skip
def test_an_edit_is_refuted(data: dict[str, Any], edit: Callable[[dict[str, Any]], None]) -> None:
    changed = copy.deepcopy(data)
    edit(changed)
    assert texts(verify(changed), Verdict.REFUTED)


COLUMNS = "kernel k(X: bf16[M, N], C: f32[N]) { par N j { C[j] = sum M i { f32(X[i, j]) } } }"
NEIGHBOURS = {0: "chunks that blocks share", 48: "strips that blocks end"}


def overlapping(strip: int) -> dict[str, Any]:
    """Blocks read whole chunks, and so columns of their neighbours, which they end of their own strip alone."""
    kernel = texpr.parse(COLUMNS).only
    found = kernel.compile("cuda:sm_90a", stop_after="map", M=32749, N=601).mapping.candidate
    assert isinstance(found, Candidate) and isinstance(found.launches["k_0"], Parted)
    how = replace(found, launches={"k_0": replace(found.launches["k_0"], strip=strip)})
    return mapping_json(kernel.compile("cuda:sm_90a", stop_after="map", mapping=how, M=40, N=301).mapping.program)


@pytest.mark.parametrize("strip", NEIGHBOURS, ids=NEIGHBOURS.get)
def test_blocks_that_read_beside_their_own_are_proved(strip: int) -> None:
    data = overlapping(strip)
    found = verify(data)
    assert not texts(found, Verdict.REFUTED) and "; blocks overlap in 1" in texts(found, Verdict.PROVED)
    assert "C: each of 301" in texts(found, Verdict.PROVED)
    (first,) = (define for define in nodes(data["host"], "Define") if define["index"] == "j_first")
    for number, weight in enumerate(digit["weight"] for digit in first["digits"]):
        changed = copy.deepcopy(data)
        (own,) = (define for define in nodes(changed["host"], "Define") if define["index"] == "j_first")
        own["digits"][number]["weight"] = weight // 2 if weight > 8 else 0  # nearer blocks; lanes that have the same
        assert texts(verify(changed), Verdict.REFUTED)


def test_what_blocks_have_beside_their_own_leaves_none(data: dict[str, Any]) -> None:
    """Of another mapping, whose stores say the place by an index of which blocks have some values both."""
    changed = copy.deepcopy(data)
    launch = changed["host"][0]
    blocks = {digit["name"] for digit in launch["digits"] if digit["place"].startswith("grid")}
    for digit in (digit for define in nodes(launch["body"], "Define") for digit in define["digits"]):
        digit["weight"] //= 1 + (digit["name"] in blocks)
    assert "and says where B is written" in texts(verify(changed), Verdict.REFUTED)


PRODUCT = """kernel g(A: bf16[M, K], B: bf16[N, K], v: f32[N], C: f32[M, N]) {
    par M i, N j { C[i, j] = v[j] * sum K k { A[i, k] * B[j, k] } }
}"""


def test_what_the_last_of_several_blocks_stores_is_stored_once() -> None:
    """Blocks share the steps of all tiles; tickets tell the tile."""
    choice = Piped(along="j", across="i", tile={"i": 64, "j": 64}, stages=2, persistent=3, streamed=True)
    how = Candidate(launches={"g_0": replace(choice, memory={"sum": Memory.REG})})
    made = texpr.parse(PRODUCT).only.compile("cuda:sm_90a", stop_after="map", mapping=how, M=40, N=72, K=200)
    data = mapping_json(made.mapping.program)
    found = verify(data)
    assert not texts(found, Verdict.REFUTED) and "C: each of 2880 elements is stored once" in texts(
        found, Verdict.PROVED
    )
    (last,) = nodes(data["host"], "Last")
    tile = last["at"][0]["tree"]
    last["at"] = [{"text": "0", "tree": 0}]
    assert "which block comes last decides whether" in texts(verify(data), Verdict.REFUTED)
    last["at"] = [{"text": "", "tree": tile}, {"text": "cluster", "tree": "cluster"}]
    assert "runs 2 times" in texts(verify(data), Verdict.REFUTED)


HOSTED = """kernel k(A: f32[N], inout B: f32[N]) {
    seq T t { if t % 2 == 0 { par N i { B[i] = B[i] + A[i] } } else { par N i { B[i] = B[i] * 0.5 } } }
}"""
SHRINKING = """kernel k(inout A: f64[N, N]) {
    seq N k { par N - k - 1 i, N - k - 1 j { A[k + 1 + i, k + 1 + j] -= A[k + 1 + i, k] * A[k, k + 1 + j] } }
}"""


@pytest.mark.parametrize(
    ("text", "sizes", "verdict", "said"),
    [
        (HOSTED, {"N": 30, "T": 5}, Verdict.PROVED, "S1: each of 60 iterations runs once"),
        (SHRINKING, {"N": 11}, Verdict.OPEN, "turns of the host decide how many blocks there are"),
    ],
)
def test_turns_of_the_host_decide_what_runs(text: str, sizes: dict[str, int], verdict: Verdict, said: str) -> None:
    made = texpr.parse(text).only.compile("cuda:sm_90a", stop_after="map", sizes=sizes)
    found = verify(mapping_json(made.mapping.program))
    assert not texts(found, Verdict.REFUTED) and said in texts(found, verdict)


def called(*arguments: str) -> int:
    return guarded(lambda: run_command(list(arguments)))


def test_the_command_says_what_is_proved_and_exits_by_it(
    data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.json"
    file.write_text(mapping_text(data), encoding="utf-8")
    assert called("verify", str(file)) == 0
    said = capsys.readouterr().out
    assert "2 of 2 parameters whose elements are stored once each" in said and "refuted" not in said
    assert called("verify", str(file), "--json") == 0
    assert {f["verdict"] for f in json.loads(capsys.readouterr().out)} <= {"proved", "open"}
    changed = copy.deepcopy(data)
    lower_d(changed)
    file.write_text(mapping_text(changed), encoding="utf-8")
    assert called("verify", str(file)) == 1
    assert "refuted: " in capsys.readouterr().out


FILES = {
    "cut off": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "a list": lambda text: "[1, 2]",
    "another file": lambda text: '{"format": "texpr-manifest", "version": 2}',
    "another version": lambda text: text.replace('"schema": 6', '"schema": 5', 1),
    "without its launches": lambda text: json.dumps({**json.loads(text), "host": 3}),
    "without its accesses": lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "accesses"}),
    "a thousand warps": lambda text: text.replace('"threads": ', '"threads": 100000', 1),
    "deep": lambda text: json.dumps({**json.loads(text), "host": json.loads("[" * 500 + "]" * 500)}),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_mapping_is_an_error_with_a_reason(
    data: dict[str, Any], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.json"
    file.write_text(FILES[name](mapping_text(data)), encoding="utf-8")
    assert called("verify", str(file)) == 1
    said = capsys.readouterr().err
    assert said.startswith("error[E0606]") and "m.json" in said


def test_a_size_that_the_mapping_has_not_is_an_error(
    data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.json"
    file.write_text(mapping_text(data), encoding="utf-8")
    assert called("verify", str(file), "-D", "Q=3") == 1
    assert "no free size Q; free sizes: M, N" in capsys.readouterr().err


@pytest.mark.parametrize("rows", [136, 168, 192])
def test_copies_that_their_engine_cuts_store_what_the_array_has(rows: int) -> None:
    text = """kernel p(A: bf16[M, K], B: bf16[K, N], C: bf16[M, N]) {
        par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }
    }"""
    compiled = texpr.parse(text).only.compile("cuda:sm_90a", M=rows, N=256, K=512, stop_after="map")
    product = mapping_json(compiled.mapping.program)
    [store] = [copy for copy in nodes(product["host"], "Copy") if copy["target"]["buffer"] == "C"]
    found = verify(product)
    assert f"C: each of {rows * 256} elements is stored" in texts(found, Verdict.PROVED)
    assert not texts(found, Verdict.REFUTED)
    whole = store["over"][0][1]
    store["over"][0][1] = {"text": "8", "tree": 8}
    assert "runs 0 times" in texts(verify(product), Verdict.REFUTED)
    store |= {"over": [[store["over"][0][0], whole], *store["over"][1:]], "clipped": False}
    assert ("is no iteration" in texts(verify(product), Verdict.REFUTED)) == (rows % 64 != 0)


KERNELS = Path(__file__).resolve().parents[1] / "kernels"


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("permute_021", {"L": 3, "M": 17, "N": 19}),
        ("lu", {"N": 1}),
        ("cholesky_column", {"N": 1}),
        ("padded_workspace", {"N": 1}),
        ("phases_of_one_launch", {"N": 0}),
    ],
)
def test_kernels_at_the_edge_of_their_sizes_are_not_refuted(name: str, sizes: dict[str, int]) -> None:
    """Requests of one element each, a loop whose index is folded, extents of variables that are counted elsewhere, and
    digits of blocks that have nothing to run."""
    made = texpr.load(KERNELS / f"{name}.tex").only.compile("cuda:sm_90a", stop_after="map", sizes=sizes)
    found = verify(mapping_json(made.mapping.program))
    assert not texts(found, Verdict.REFUTED) and texts(found, Verdict.PROVED)


def test_a_request_of_one_element_is_asked_of_each(data: dict[str, Any]) -> None:
    """Copies of a permutation put elements apart in shared memory: another place of one of them is seen."""
    made = texpr.load(KERNELS / "permute_021.tex").only.compile("cuda:sm_90a", stop_after="map", L=3, M=17, N=19)
    own = mapping_json(made.mapping.program)
    sample = next(
        s for e in own["accesses"] if e["statement"] == "S0_stage" for s in e["samples"] if s["at"]["b_column"]
    )
    lane = next(lane for lane, first in enumerate(sample["first"]) if first is not None)
    sample["first"][lane] += 4
    assert "begins at byte" in texts(verify(own), Verdict.REFUTED)
