"""Random stencils: kernels whose reads are shifted copies of one another, of one to three indices and several types."""

from dataclasses import dataclass
from random import Random

TYPES = (
    (("f32", "f32"),) * 4 + (("bf16", "bf16"),) * 3 + (("f32", "bf16"), ("bf16", "f32"), ("i8", "i8"), ("f64", "f64"))
)
SHORT, LONG = (1, 2, 3, 5, 7), (128, 130, 133, 256, 257, 261, 390, 517)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stencil:
    """A kernel and sizes for it; its indices, the last along rows."""

    text: str
    sizes: dict[str, int]
    indices: tuple[str, ...]


def stencil(seed: int, name: str = "k") -> Stencil:
    """Reads of two arrays with margins of up to 2 elements before and behind, of a third by the last index alone; the
    rows of what is written are as long as those that are read, or not."""
    random = Random(seed)
    indices = tuple("dij"[3 - random.choice((1, 2, 2, 2, 3)) :])
    own, other = random.choice(TYPES)
    margin = {c: random.randint(1, 4) for c in indices}
    begin = {c: random.randint(0, min(margin[c], 2)) for c in indices}
    beyond = {c: random.choice((begin[c], margin[c], margin[c], margin[c], margin[c] + 1)) for c in indices}
    reads = []
    for _ in range(random.randint(3, 7)):
        at = ", ".join(f"{c} + {random.randint(0, margin[c])}" for c in indices)
        reads.append(f"{random.choice('XXXZ')}[{at}]")
    reads += [f"W[{indices[-1]}]"] if random.random() < 0.3 else []
    value = " + ".join(read if own == other else f"{other}({read})" for read in reads)
    shape = ", ".join(f"{c.upper()} + {margin[c]}" for c in indices)
    written = ", ".join(f"{c.upper()} + {beyond[c]}" for c in indices)
    place = ", ".join(f"{c} + {begin[c]}" for c in indices)
    band = ", ".join(f"{c.upper()} {c}" for c in indices)
    params = f"X: {own}[{shape}], Z: {own}[{shape}], W: {own}[{indices[-1].upper()}], Y: {other}[{written}]"
    text = f"kernel {name}({params}) {{ par {band} {{ Y[{place}] {random.choice(('=', '=', '+='))} {value} }} }}"
    sizes = {c.upper(): random.choice(LONG if c == indices[-1] else SHORT) for c in indices}
    return Stencil(text=text, sizes=sizes, indices=indices)
