"""Dataclasses whose methods are written late are dataclasses: each does what that of `dataclasses` does."""

import ast
import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from functools import partial
from itertools import product
from pathlib import Path
from threading import Barrier, Thread
from typing import Any, ClassVar

import pytest

from texpr.grammar.records import dataclass

ROOT = Path(__file__).resolve().parents[2]
Decorator = Callable[[type], type]
FLAGS = [
    {"frozen": frozen, "slots": slots, "kw_only": kw_only, "eq": eq}
    for frozen, slots, kw_only, eq in product((False, True), repeat=4)
]


def family(make: Decorator) -> tuple[type, ...]:
    """Classes with every kind of field, made by a decorator."""

    class Plain:
        a: int
        b: str = "b"

    first: Any = make(Plain)

    class Below(first):  # type: ignore[misc]  # a class that is made by a call
        c: "list[int]" = field(default_factory=list)
        d: int = field(default=4, compare=False, repr=False)
        e: int = field(default=5, init=False)
        f: int = field(default=6, hash=False)
        g: tuple[int, ...] = field(default=(), kw_only=True)
        shared: ClassVar[int] = 7

        def __post_init__(self) -> None:
            object.__setattr__(self, "c", [*self.c, 1])

    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 3

        def __repr__(self) -> str:
            return "own"

    class Compared:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

    class Empty:
        pass

    return (first, *map(make, (Below, Own, Compared, Empty)))


def said(run: Callable[[], object]) -> object:
    try:
        return run()
    except (TypeError, AttributeError, ValueError) as why:
        return type(why), str(why).replace(".<locals>", "")


def assigned(value: Any, name: str) -> str:
    setattr(value, name, 9)
    return repr(value)


def deleted(value: Any, name: str) -> list[str]:
    delattr(value, name)
    return [each.name for each in dataclasses.fields(value) if hasattr(value, each.name)]


def hashed_alike(one: object, other: object) -> bool:
    return hash(one) == hash(other)


def observed(kind: Any) -> list[object]:
    """All that one sees of a class and of values of it."""
    seen: list[object] = [kind.__match_args__, str(inspect.signature(kind)), kind.__hash__ is None]
    seen += [
        [(f.name, f.type, f.default, f.init, f.compare, f.kw_only) for f in dataclasses.fields(kind)],
        sorted(vars(kind).get("__slots__", ())),
        [said(lambda: repr(kind())), said(lambda: repr(kind(1))), said(lambda: repr(kind(1, "x", unknown=2)))],
    ]
    names = [f.name for f in dataclasses.fields(kind) if f.init]
    given = {name: [2] if name == "c" else 2 for name in names}
    one, same = kind(**given), kind(**given)
    others = [kind(**{**given, name: [3] if name == "c" else 3}) for name in names]
    seen += [repr(one), one == same, [one == other for other in others], said(partial(hashed_alike, one, same))]
    seen += [said(partial(hashed_alike, one, other)) for other in others]
    seen += [one == 3, one != same, repr(copy.copy(one)), repr(copy.deepcopy(one))]
    seen += [said(lambda: repr(dataclasses.replace(one, a=7))), said(lambda: repr(dataclasses.replace(one, e=7)))]
    for name in ("a", "e", "unknown"):
        for change in (assigned, deleted):
            told = said(partial(change, kind(**given), name))
            known = name in names or not isinstance(told, tuple)
            seen.append(
                told if known else "refused"
            )  # frozen with slots, the library's own says a TypeError of `super`
    return seen


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: "-".join(k for k, v in flags.items() if v) or "none")
def test_every_method_does_what_that_of_the_standard_library_does(flags: dict[str, bool]) -> None:
    for late, usual in zip(family(dataclass(**flags)), family(dataclasses.dataclass(**flags)), strict=True):
        assert observed(late) == observed(usual)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: int
    y: int = 0


class Named(Point):
    """Below a frozen class: no dataclass of its own."""


def test_values_are_pickled_before_any_method_was_written() -> None:
    assert pickle.loads(pickle.dumps(Point(x=1, y=2))) == Point(x=1, y=2)


def test_a_plain_class_below_a_frozen_one_adds_attributes_and_keeps_its_fields() -> None:
    named: Any = Named(x=1)
    named.name = "here"
    assert named.name == "here"
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        named.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del named.x


@pytest.mark.parametrize("frozen", [False, True])
def test_a_frozen_class_and_another_are_not_below_one_another(frozen: bool) -> None:
    @dataclass(frozen=frozen)
    class Base:
        a: int

    class Below(Base):
        b: int = 0

    with pytest.raises(TypeError, match="Below is frozen, or its base Base, and not both"):
        dataclass(frozen=not frozen)(Below)


def test_methods_are_written_when_they_are_asked_for_and_once() -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh:
        a: int

    assert {type(vars(Fresh)[name]).__name__ for name in ("__init__", "__eq__", "__hash__")} == {"_Unwritten"}
    value = Fresh(1)
    first = vars(Fresh)["__init__"]
    assert inspect.isfunction(first) and first.__qualname__.endswith("Fresh.__init__")
    assert vars(Fresh)["__eq__"].__class__.__name__ == "_Unwritten"
    assert value == Fresh(1) and vars(Fresh)["__init__"] is first


def test_a_value_that_holds_itself_is_printed() -> None:
    @dataclass(slots=True)
    class Ring:
        next: object = None

    ring = Ring()
    ring.next = ring
    assert repr(ring).endswith("Ring(next=...)")


def test_threads_that_ask_together_get_the_same() -> None:
    for _ in range(20):

        @dataclass(frozen=True, slots=True)
        class Shared:
            a: int
            b: int = 2

        start, found = Barrier(4), list[Any]()

        def ask(start: Barrier = start, kind: type = Shared, found: list[Any] = found) -> None:
            start.wait()
            found.append(kind(1))

        threads = [Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({*found}) == 1 and found[0] == Shared(1)


def test_every_dataclass_of_the_product_is_written_late() -> None:
    """But those that are ordered, and the verifier's, which shares no code."""
    usual: set[str] = set()
    for floor in ("grammar", "polyhedral", "codegen", "runtime"):
        for path in (ROOT / floor).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "dataclass" in text and "verify" not in path.parts and path.name != "records.py":
                usual |= {
                    f"{path.relative_to(ROOT)}"
                    for node in ast.walk(ast.parse(text))
                    if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
                    if "dataclass" in {alias.name for alias in node.names}
                }
    assert usual == {"polyhedral/model/delinearize.py", "polyhedral/prove/witness.py"}
