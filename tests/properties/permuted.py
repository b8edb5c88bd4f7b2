"""Random bands of permuted, shifted and strided accesses at the sizes of tiles, on the simulator and on `cuda-host`.

    python tests/properties/permuted.py FIRST COUNT

prints one line of counts, with how many bands were mapped to each form, and every band that a backend gets wrong.
"""

import argparse
import random
import sys
import traceback
from collections import Counter
from itertools import count

from differential import BACKENDS, Emitted, Tally, judge, judge_batch, reference, special_arguments
from programs import Case

import texpr

TYPES = ("f32", "f32", "bf16", "f16", "u8", "i32", "f64", "i64")
SIDES = (1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 129, 130)
FREE = 0.4  # of the programs have free sizes


def band(seed: int) -> tuple[Case, bool]:
    """A band of a seed, and whether its sizes are free."""
    chance = random.Random(seed)
    indices = "ijk"[: chance.choice((2, 2, 3))]
    sizes = {index.upper(): chance.choice(SIDES) for index in indices}
    if len(indices) == 3:
        sizes[chance.choice(list(sizes))] = chance.choice((1, 2, 3, 5))
    names = (f"R{n}" for n in count())
    params: list[str] = []

    def element(name: str, dtype: str, *, written: bool) -> str:
        order = chance.sample(indices, len(indices))
        if not written and chance.random() < 0.25:
            order = order[: chance.randint(1, len(order))]
        shape, subscripts = [index.upper() for index in order], list(order)
        if chance.random() < 0.25:
            k, ahead = chance.randrange(len(order)), chance.randint(1, 5)
            shape[k], subscripts[k] = f"{shape[k]} + {ahead}", f"{order[k]} + {ahead}"
        elif chance.random() < 0.15:
            k = chance.randrange(len(order))
            shape[k], subscripts[k] = f"2 * {shape[k]}", f"2 * {order[k]}"
        elif chance.random() < 0.15:
            k = chance.randrange(len(order))
            subscripts[k] = f"{shape[k]} - 1 - {order[k]}"
        params.append(f"{name}: {dtype}[{', '.join(shape)}]")
        return f"{name}[{', '.join(subscripts)}]"

    dtype = chance.choice(TYPES)
    kinds = [chance.choice((dtype, dtype, chance.choice(TYPES))) for _ in range(chance.choice((1, 1, 2, 3)))]
    reads = [element(next(names), kind, written=False) for kind in kinds]
    value = f"{dtype}({' + '.join(f'{dtype}({read})' for read in reads)})"
    target = element("W", dtype, written=True)
    body = f"{target} {chance.choice(('=', '=', '=', '+='))} {value}"
    if chance.random() < 0.2:
        body = f"let x = {value}; {target} = {dtype}(x + x)"
    loops = ", ".join(f"{index.upper()} {index}" for index in chance.sample(indices, len(indices)))
    text = f"kernel permuted_{seed}({', '.join(params)}) {{ par {loops} {{ {body} }} }}\n"
    return Case(seed, text, sizes, False), chance.random() < FREE


def run(seeds: range, tally: Tally) -> Counter[str]:
    """The bands of the seeds on both backends; how many were mapped to each form."""
    forms, ready = Counter[str](), list[Emitted]()
    for seed in seeds:
        case, free = band(seed)
        tally.counts["programs"] += 1
        try:
            kernel = texpr.parse(case.text, f"permuted_{seed}").only
            values = special_arguments(kernel, case.sizes, seed)
            ref = reference(kernel, case.sizes, values, dynamic=tuple(case.sizes) if free else ())
            made = ref.compile("cuda-host:sm_90a")
            forms.update(type(c).__name__ for c in made.mapping.program.candidate.launches.values())
        except Exception:  # every band is legal: a refusal is a failure, too
            tally.fail(case, traceback.format_exc()[-1500:])
            continue
        judge(case, "simulate", lambda ref=ref, seed=seed: BACKENDS["simulate"](ref, seed), ref, tally)
        ready.append((case, ref, made))
    judge_batch(ready, tally)
    return forms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    tally, forms = Tally(), Counter[str]()
    for start in range(options.first, options.first + options.count, 30):
        forms += run(range(start, min(start + 30, options.first + options.count)), tally)
    for failure in tally.failures[:5]:
        print(failure, "\n")
    print(dict(sorted(tally.counts.items())), dict(sorted(forms.items())))
    sys.exit(bool(tally.failures))


if __name__ == "__main__":
    main()
