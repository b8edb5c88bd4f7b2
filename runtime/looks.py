"""What arrays look like: of a NumPy, torch or CuPy array its library, shape, strides, type and device.

Arrays of equal looks differ in nothing but their memory. A call asks for the looks of all its arrays, so what is asked
is what C answers: a getter for several attributes, or torch's own guards, which compare what they have noted of tensors
without making Python objects of it.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any
from weakref import ref

Look = tuple[Any, ...]  # begins with the class: to CuPy's device 0, NumPy's `writeable` False is equal
Fact = tuple[Any, ...]  # a look, and behind it the address of the first element
Asks = Callable[[Any], Fact]


def _numpy(array: Any) -> Fact:
    address = array.__array_interface__["data"][0]
    return array.__class__, array.shape, array.strides, array.dtype, array.flags.writeable, address


def _torch(tensor: Any) -> Fact:
    own = tensor.__class__, tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.is_neg()
    return *own, tensor.data_ptr()


_shape = attrgetter("shape")
_cupy = attrgetter("__class__", "shape", "strides", "dtype", "data.device_id", "data.ptr")
_LIBRARIES: dict[tuple[str, str], Asks] = {
    ("numpy", "ndarray"): _numpy,
    ("torch", "Tensor"): _torch,
    ("cupy", "ndarray"): _cupy,
}


class _Ways(dict[type, Asks]):
    """How the arrays of a class are asked, as far as one has been seen. Raises KeyError for those without looks."""

    def __missing__(self, kind: type) -> Asks:
        way = self[kind] = _LIBRARIES[kind.__module__, kind.__name__]
        return way


_ways = _Ways()


def facts_of(arrays: Sequence[Any]) -> list[Fact] | None:
    """The looks of arrays and their addresses; None where one has no look, as those of other libraries. Behind one of a
    library, an array of a class derived from its own may have a look, which no array of the library has."""
    try:
        return [*map(_ways[type(arrays[0])], arrays)]  # most calls have arrays of one library
    except Exception:
        return plain_facts_of(arrays)


def plain_facts_of(arrays: Sequence[Any]) -> list[Fact] | None:
    """The same; None also where an array is of a derived class, which may mean something else by equal looks."""
    try:
        return [_ways[type(array)](array) for array in arrays]
    except Exception:  # torch's sparse and wrapped tensors have no strides or address; `view_of` says what they are
        return None


def looks_in(facts: Sequence[Fact]) -> tuple[Look, ...]:
    """The looks of arrays, without their addresses."""
    return tuple([fact[:-1] for fact in facts])


Guard = tuple[Callable[..., bool], Callable[[Any], int]]
"""Whether arrays look as those did that it was made of, and how each of them is asked for its address."""


def guard_of(arrays: Sequence[Any]) -> Guard | None:
    """Torch's own, those of `torch.compile`, for several tensors; None for other arrays, for tensors of which one is
    another, and where this torch has none. They say no to some that look alike, such as in inference mode."""
    try:
        kinds: set[Any] = {*map(type, arrays)}
        (kind,) = kinds
        if _ways[kind] is not _torch:
            return None
        from torch._C._dynamo.guards import TensorGuards

        shapes, strides = (
            [[*of] for of in each] for each in zip(*((a.shape, a.stride()) for a in arrays), strict=True)
        )
        check = TensorGuards(*arrays, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
        return (check, kind.data_ptr) if check(*arrays) else None
    except Exception:  # a library's own inside: whatever it says, calls are compared by their looks
        return None


Same = Callable[[Sequence[Any]], bool]
"""Whether arrays are those that it was made of, as they were then."""


def same_of(arrays: Sequence[Any]) -> Same | None:
    """Of CuPy's arrays, in which nothing can be set but the shape: they are asked in a third of the time that their
    looks take. Nothing is kept alive by it. None for other arrays."""
    try:
        if any(_ways[type(array)] is not _cupy for array in arrays):
            return None
        dead: list[Any] = []  # an identity is given again when an array is over, which is told before that
        alive = [ref(array, dead.append) for array in arrays]
        ids, shapes = [*map(id, arrays)], [*map(_shape, arrays)]
    except Exception:  # a library's own inside: whatever it says, calls are compared by their looks
        return None

    def same(arrays: Sequence[Any], kept: Any = alive) -> bool:
        return not dead and [*map(id, arrays)] == ids and [*map(_shape, arrays)] == shapes

    return same
