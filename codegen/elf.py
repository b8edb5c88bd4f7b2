"""Cubins as ELF files: their sections, symbols and the texts in them. Reading raises struct.error, IndexError, KeyError
or ValueError for what is none."""

import struct
from collections.abc import Iterator

from texpr.grammar.records import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    offset: int
    size: int
    link: int
    entry: int


def sections(cubin: bytes) -> dict[str, Section]:
    """The sections by name."""
    return {section.name: section for section in in_order(cubin)}


def in_order(cubin: bytes) -> tuple[Section, ...]:
    """The sections as symbols number them."""
    if cubin[:5] != b"\x7fELF\x02":
        raise KeyError("it is no ELF file of 64 bits")
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    each, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    heads = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + each * k) for k in range(count)]
    text = heads[names][4]
    return tuple(Section(text_at(cubin, text + h[0]), h[4], h[5], h[6], h[9]) for h in heads)


def symbols(cubin: bytes, table: Section, names: Section) -> Iterator[tuple[str, int]]:
    """Every symbol's name, and the number of the section that it stands in."""
    for k in range(table.size // 24):
        start, _, _, section = struct.unpack_from("<IBBH", cubin, table.offset + 24 * k)
        yield text_at(cubin, names.offset + start), section


def text_at(cubin: bytes, start: int) -> str:
    return cubin[start : cubin.index(b"\0", start)].decode()
