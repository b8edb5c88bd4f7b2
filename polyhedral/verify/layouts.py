"""Addresses: where the layouts of a mapping's JSON put an element."""

from collections.abc import Mapping
from typing import Any

from texpr.polyhedral.verify.integers import FileError, Tree

BYTES = {"bool": 1, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}


def element_bytes(buffers: Mapping[str, Any], name: str) -> int:
    """The bytes of an element of a buffer."""
    dtype = str(_buffer(buffers, name).get("dtype"))
    if dtype in BYTES:
        return BYTES[dtype]
    bits = "".join(c for c in dtype.partition("e")[0] if c.isdigit())
    if not bits or int(bits) % 8:
        raise FileError(f"{dtype[:20]} is no element type")
    return int(bits) // 8


def shape_of(buffers: Mapping[str, Any], name: str) -> list[Tree]:
    return [extent["tree"] for extent in _layout(buffers, name)["shape"]]


def address_tree(buffers: Mapping[str, Any], name: str, subscripts: list[Tree]) -> Tree:
    """The address of an element, in elements."""
    layout = _layout(buffers, name)
    if len(subscripts) != len(layout["shape"]):
        raise FileError(f"{name[:40]} has {len(layout['shape'])} dimensions, and {len(subscripts)} subscripts")
    total: Tree = 0
    for term in layout["terms"]:
        if term["unit"] != "address":
            continue
        value: Tree = 0 if term["dim"] is None else subscripts[int(term["dim"])]
        value = ["+", value, term["offset"]["tree"]]
        value = ["/", value, int(term["divisor"])]
        if term["modulus"] is not None:
            value = ["%", value, int(term["modulus"])]
        total = ["+", total, ["*", value, term["stride"]["tree"]]]
    return total if layout["xor"] is None else _mixed(total, layout["xor"])


def _mixed(address: Tree, xor: Mapping[str, int]) -> Tree:
    """Bits of the address XORed into others: a bit of the sum of two is their XOR."""
    total = address
    for place in range(int(xor["base"]), int(xor["base"]) + int(xor["bits"])):
        own, other = ["/", address, 1 << place], ["/", address, 1 << (place + int(xor["shift"]))]
        change = ["-", ["%", ["+", own, other], 2], ["%", own, 2]]
        total = ["+", total, ["*", 1 << place, change]]
    return total


def _buffer(buffers: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if name not in buffers or not isinstance(buffers[name], Mapping):
        raise FileError(f"there is no buffer {name[:40]}")
    found: Mapping[str, Any] = buffers[name]
    return found


def _layout(buffers: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    layout = _buffer(buffers, name).get("layout")
    if not isinstance(layout, Mapping) or not {"shape", "terms", "xor"} <= layout.keys():
        raise FileError(f"{name[:40]} has no layout")
    return layout
