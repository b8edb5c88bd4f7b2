"""`.npz` files from outside: never unpickled, never larger than the machine, never half-written."""

import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import texpr
from texpr.inspect import write_whole
from texpr.trial import run_trial
from texpr.trial_files import load_inputs, save_arrays

KERNEL = "kernel k(A: f32[N], B: f32[N], s: f32) { par N i { B[i] = A[i] * s } }\n"
DATA = np.arange(8, dtype="f4")


def manifest() -> Any:
    from texpr.codegen.artifact import signature

    return signature(texpr.parse(KERNEL).only.core(), "cpu", "0")


def header(shape: str, descr: str = "'<f4'", version: bytes = b"\x01\x00") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text.encode()


def code_of(path: Path, *, run: bool = False) -> str:
    with pytest.raises(texpr.TExprError) as caught:
        if run:
            run_trial(texpr.parse(KERNEL).only, "cpu", sizes={}, inputs=path)
        else:
            load_inputs(path, manifest())
    return caught.value.diagnostics[0].code


class Touches:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    arrays = {"A": DATA, "B": np.asfortranarray(np.arange(8.0).reshape(2, 4)), "s": np.float32(2)}
    save_arrays(tmp_path / "o.npz", arrays)
    back = load_inputs(tmp_path / "o.npz", manifest())
    assert all(np.array_equal(back[name], array) and back[name].dtype == array.dtype for name, array in arrays.items())
    np.savez_compressed(tmp_path / "c.npz", **arrays)
    assert np.array_equal(load_inputs(tmp_path / "c.npz", manifest())["B"], arrays["B"])


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    trace, path = tmp_path / "trace", tmp_path / "i.npz"
    np.savez(path, A=np.array([Touches(trace)] * 8, dtype=object))
    assert code_of(path) == "E0606"
    path.write_bytes(pickle.dumps(Touches(trace)))
    assert code_of(path) == "E0606"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("A.npy", header("(8,)", "'O'") + pickle.dumps(Touches(trace)))
    assert code_of(path) == "E0606"
    assert not trace.exists()


MEMBERS = {
    "elements beyond every type": (header("(1,)", "'|V4096'") + bytes(4096), "E0606"),
    "a shape beyond the machine": (header("(1099511627776,)"), "E0602"),
    "a shape beyond 64 bits": (header(f"({2**63}, {2**63})"), "E0602"),
    "a shape beyond the file": (header("(100000000,)") + bytes(100), "E0606"),
    "fewer bytes than the shape": (header("(8,)") + bytes(31), "E0606"),
    "more bytes than the shape": (header("(8,)") + bytes(33), "E0606"),
    "a negative shape": (header("(-8,)") + bytes(32), "E0606"),
    "a shape of truths": (header("(True,)") + bytes(4), "E0606"),
    "a shape of floats": (header("(8.0,)") + bytes(32), "E0606"),
    "an expression as shape": (header("(1 << 3,)") + bytes(32), "E0606"),
    "an unknown type": (header("(8,)", "'<f99'") + bytes(32), "E0606"),
    "elements without bytes": (header("(8,)", "'V0'"), "E0606"),
    "a deep header": (header("(" * 3000 + ")" * 3000), "E0606"),
    "a version to come": (header("(8,)", version=b"\x09\x00") + bytes(32), "E0606"),
    "no array": (b"not an array", "E0606"),
    "nothing": (b"", "E0606"),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_that_is_no_array_of_its_header_is_refused(name: str, tmp_path: Path) -> None:
    content, code = MEMBERS[name]
    with zipfile.ZipFile(tmp_path / "i.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("A.npy", content)
    assert code_of(tmp_path / "i.npz") == code


def test_a_bomb_is_refused_by_its_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from texpr import trial_memory

    monkeypatch.setattr(trial_memory, "host_memory_bytes", lambda: 1 << 20)
    np.savez_compressed(tmp_path / "i.npz", A=np.zeros(1 << 20, "f4"))
    assert (tmp_path / "i.npz").stat().st_size < 10_000
    assert code_of(tmp_path / "i.npz") == "E0602"


@pytest.mark.parametrize("place", range(0, 260, 7))
def test_a_flipped_byte_gives_the_array_or_a_diagnostic(place: int, tmp_path: Path) -> None:
    np.savez(tmp_path / "i.npz", A=DATA)
    content = bytearray((tmp_path / "i.npz").read_bytes())
    for at in (place, len(content) - 1 - place):
        damaged = content.copy()
        damaged[at] ^= 0xFF
        (tmp_path / "i.npz").write_bytes(damaged)
        try:
            found = load_inputs(tmp_path / "i.npz", manifest())
        except texpr.TExprError:
            continue
        assert np.array_equal(found.get("A", DATA), DATA)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04" + bytes(100), bytes(1000)], ids=["empty", "zip", "zeros"])
def test_what_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "i.npz").write_bytes(content)
    assert code_of(tmp_path / "i.npz") == "E0606"


def test_a_path_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    np.save(tmp_path / "i.npy", DATA)
    for path in (tmp_path, tmp_path / "none", tmp_path / "pipe", tmp_path / "i.npy", Path("x" * 5000)):
        assert code_of(path) == "E0606"


@pytest.mark.parametrize(
    ("arrays", "code"),
    [
        ({"Q": DATA}, "E0601"),
        ({"A": DATA.astype("f8")}, "E0601"),
        ({"A": DATA.astype(">f4")}, "E0601"),
        ({"A": DATA.astype("c8")}, "E0601"),
        ({"A": DATA.astype("U3")}, "E0601"),
        ({"A": DATA.reshape(2, 4)}, "E0602"),
        ({"A": np.float32(1)}, "E0602"),
        ({"A": DATA, "B": DATA[:4]}, "E0601"),
        ({"A": DATA, "s": DATA}, "E0601"),
        ({"A": DATA, "s": np.array("x")}, "E0601"),
        ({"A": DATA, "s": np.array(1j)}, "E0601"),
        ({"A": DATA, "s": np.array(True)}, "E0601"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
def test_arrays_that_do_not_fit_are_refused(arrays: dict[str, Any], code: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "i.npz", **arrays)
    assert code_of(tmp_path / "i.npz", run=True) == code


def test_only_plain_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "frozen").write_text("kept")
    (tmp_path / "frozen").chmod(0o444)
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.iterdir())
    for path in ("pipe", "folder", "frozen", "loop", "none/file", "x" * 300, "frozen/below"):
        with pytest.raises(texpr.TExprError, match="E0606"):
            write_whole(tmp_path / path, b"new")
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "frozen").read_text() == "kept"
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_stays_a_link_and_a_mode_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_new_file_has_the_rights_that_new_files_have(tmp_path: Path) -> None:
    (tmp_path / "usual").write_text("")
    write_whole(tmp_path / "new", b"new")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode
