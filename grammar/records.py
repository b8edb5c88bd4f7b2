"""`dataclass` as `dataclasses` has it, but for the time when methods are written: when they are first called.

A process that compiles one kernel loads some four hundred dataclasses, makes values of half of them, and compares or
prints few. Python compiles six methods for each as it is defined, a third of a millisecond; here it compiles those that
are asked for, and what no text of its own needs is a function that all share. `fields`, `replace`, `is_dataclass`,
`copy`, `pickle` and `match` see a dataclass like any other, whose methods do the same.

Not offered: `order`, `init=False`, `repr=False`, `unsafe_hash`, `weakref_slot`, `InitVar`.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")


def _late_dataclass(
    *, frozen: bool = False, slots: bool = False, kw_only: bool = False, eq: bool = True
) -> Callable[[type[T]], type[T]]:
    """The decorator: the class with its fields, and methods that are written when they are first asked for."""

    def made(kind: type[T]) -> type[T]:
        own = vars(kind)
        for base in kind.__mro__[1:]:
            if "__dataclass_fields__" in vars(base) and frozen is not (getattr(base, "__setattr__", None) is _assigned):
                raise TypeError(f"{kind.__name__} is frozen, or its base {base.__name__}, and not both")
        shared: dict[str, Any] = {} if "__repr__" in own else {"__repr__": _shown}
        if frozen:
            shared |= {"__setattr__": _assigned, "__delattr__": _deleted}
        if frozen and slots:
            shared |= {"__getstate__": _state, "__setstate__": _restored}
        writers = {} if "__init__" in own else {"__init__": _init}
        if eq and "__eq__" not in own:
            writers["__eq__"] = _eq
        hashed = own.get("__hash__") is not None  # a class with `__eq__` alone has `__hash__ = None` of Python
        if eq and not hashed and frozen:
            writers["__hash__"] = _hash
        elif eq and not hashed:
            shared["__hash__"] = None
        for name, method in shared.items():
            setattr(kind, name, method)
        kind.__doc__ = kind.__doc__ or kind.__name__  # else it would be a signature, which takes long to find
        # By itself this compiles nothing: it finds the fields, and makes the class again where that has slots.
        result = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(kind)
        for name, write in writers.items():
            setattr(result, name, _Unwritten(result, name, write))
        return result

    return made


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _late_dataclass


class _Unwritten:
    """A method in the place of which its class has another from the first look on."""

    __slots__ = ("home", "name", "write")

    def __init__(self, home: type, name: str, write: Callable[[type], str]) -> None:
        self.home, self.name, self.write = home, name, write

    def __get__(self, instance: object, owner: type) -> Any:
        method = _compiled(self.home, self.name, self.write(self.home))
        setattr(self.home, self.name, method)  # of two threads both write the same
        return method.__get__(instance, owner)


def _compiled(home: type, name: str, text: str) -> Any:
    """The function of a text, which finds the home's fields by the names `default_x` and `set_x`, as it needs them."""
    names: dict[str, Any] = {"assign": object.__setattr__, "ABSENT": ABSENT}
    for each in fields(home):
        names[f"default_{each.name}"] = each.default if each.default_factory is MISSING else each.default_factory
        if _is_slot(home, each):
            names[f"set_{each.name}"] = getattr(home, each.name).__set__
    found: dict[str, Any] = {}
    exec(text, names, found)
    method = found[name]
    method.__qualname__ = f"{home.__qualname__}.{name}"
    method.__module__ = home.__module__
    if name == "__init__":
        method.__annotations__ = {each.name: each.type for each in fields(home) if each.init} | {"return": None}
    return method


ABSENT: Any = type("_Absent", (), {"__repr__": lambda self: "<factory>"})()


def _init(home: type) -> str:
    """The text of `__init__`."""
    every = [each for each in fields(home) if each.init]
    plain, named = [e for e in every if not e.kw_only], [e for e in every if e.kw_only]
    parameters = ["self", *map(_parameter, plain), *(["*"] if named else []), *map(_parameter, named)]
    lines = [line for each in fields(home) for line in _set(home, each)]
    if hasattr(home, "__post_init__"):
        lines.append("self.__post_init__()")
    return f"def __init__({', '.join(parameters)}):\n" + "".join(f" {line}\n" for line in lines or ["pass"])


def _parameter(each: Field[Any]) -> str:
    if each.default_factory is not MISSING:
        return f"{each.name}=ABSENT"
    return each.name if each.default is MISSING else f"{each.name}=default_{each.name}"


def _set(home: type, each: Field[Any]) -> list[str]:
    """The statement that gives a new value one field; none for a default that the class itself has."""
    name, made = each.name, f"default_{each.name}()"
    if each.init:
        value = name if each.default_factory is MISSING else f"{made} if {name} is ABSENT else {name}"
    elif each.default_factory is not MISSING:
        value = made
    elif each.default is not MISSING and "__slots__" in vars(home):
        value = f"default_{name}"
    else:
        return []
    if getattr(home, "__setattr__", None) is not _assigned:
        return [f"self.{name} = {value}"]
    return [f"set_{name}(self, {value})" if _is_slot(home, each) else f"assign(self, {name!r}, {value})"]


def _is_slot(home: type, each: Field[Any]) -> bool:
    """Whether a field has a slot, which is assigned past `__setattr__` faster than by the name of the field."""
    return isinstance(getattr(home, each.name, None), MemberDescriptorType)


def _compared(value: str, names: list[str]) -> str:
    return f"({''.join(f'{value}.{name}, ' for name in names)})"


def _eq(home: type) -> str:
    names = [each.name for each in fields(home) if each.compare]
    both = f"{_compared('self', names)} == {_compared('other', names)}"
    return f"def __eq__(self, other):\n return {both} if other.__class__ is self.__class__ else NotImplemented\n"


def _hash(home: type) -> str:
    every = fields(home)
    names = [each.name for each in every if (each.compare if each.hash is None else each.hash)]
    return f"def __hash__(self):\n return hash({_compared('self', names)})\n"


@recursive_repr()
def _shown(self: Any) -> str:
    parts: list[str] = []
    for each in fields(self):  # in this frame: a deep tree takes two of Python's for each of its nodes, and not three
        if each.repr:
            parts.append(f"{each.name}={getattr(self, each.name)!r}")
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _fixed(self: Any, name: str) -> bool:
    """Whether an attribute of a frozen value is out of reach: all are, but what a plain class below it adds."""
    return "__dataclass_fields__" in vars(type(self)) or name in (each.name for each in fields(self))


def _assigned(self: Any, name: str, value: object) -> None:
    if _fixed(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _deleted(self: Any, name: str) -> None:
    if _fixed(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _state(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in fields(self)]


def _restored(self: Any, state: list[object]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
