"""Random programs whose threads exchange data within a block: `block_program(seed)` gives one kernel as text.

Locals of one or two dims are written and read by inner pars, by one thread, or by sums that the threads share out;
between them stand `seq`s, conditions on indices and on data, and locals that begin anew in every iteration. Extents
fill lanes, warps and blocks, miss them by one or pass them by one; subscripts are quasi-affine.

    python tests/polyhedral/block_programs.py FIRST COUNT

maps programs and prints those that lack an order.
"""

import random
import sys

SIZES = {"M": 3, "K": 2}
EXTENTS = (5, 31, 32, 33, 63, 64, 64, 65, 96, 128, 129)


class Block:
    """State of one program's making."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.extent = self.rng.choice(EXTENTS)
        self.lines: list[str] = []
        self.names = 0
        self.locals_: list[str] = []
        self.pairs: list[str] = []
        self.scalars: list[str] = []
        self.loops: list[str] = []

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def line(self, text: str) -> None:
        self.lines.append("    " * (2 + len(self.loops)) + text)

    def bijection(self, index: str) -> str:
        """A subscript that is another for every value of the index."""
        n = self.extent
        options = [index, index, f"{n - 1} - {index}", f"({index} + 1) % {n}"]
        if n % 2 == 0:
            options += [f"{index} - {index} % 2 + (1 - {index} % 2)", f"{index} % 2 * {n // 2} + {index} / 2"]
        if n % 32 == 0:
            options += [f"{index} - {index} % 32 + 31 - {index} % 32", f"{index} / 32 * 32 + ({index} + 3) % 32"]
        return self.rng.choice(options)

    def any_subscript(self, index: str) -> str:
        n = self.extent
        turn = self.rng.choice(self.loops) if self.loops else "1"
        return self.rng.choice(
            (self.bijection(index), self.bijection(index), f"{index} / 2", "0", f"({index} + {turn}) % {n}", str(n - 1))
        )

    def value(self, index: str | None, forbidden: str = "") -> str:
        at = index or "2"
        reads = [f"{t}[{self.any_subscript(at)}]" for t in self.locals_ if t != forbidden]
        reads += [f"{t}[{self.rng.choice('01')}, {self.any_subscript(at)}]" for t in self.pairs if t != forbidden]
        reads += [s for s in self.scalars if s != forbidden]
        reads += [f"A[i, {at}]", "1", f"G[i, {self.rng.randrange(self.extent)}]"]
        return " + ".join(self.rng.sample(reads, k=min(len(reads), self.rng.choice((1, 2, 2)))))

    def new(self) -> None:
        name, index = self.fresh("t"), self.fresh("a")
        if self.locals_ and self.rng.random() < 0.25:
            self.line(f"new {name}: i32[2, {self.extent}]")
            other = self.fresh("b")
            head = self.rng.choice((f"par 2 {other}, {self.extent} {index}", f"par {self.extent} {index}, 2 {other}"))
            self.line(f"{head} {{ {name}[{other}, {index}] = {self.value(index)} }}")
            self.pairs.append(name)
            return
        self.line(f"new {name}: i32[{self.extent}]")
        self.line(f"par {self.extent} {index} {{ {name}[{self.bijection(index)}] = {self.value(index)} }}")
        self.locals_.append(name)

    def move(self) -> None:
        """A par that writes a local from others; its own only where it writes."""
        index = self.fresh("a")
        name = self.rng.choice(self.locals_)
        own = self.bijection(index)
        roll = self.rng.random()
        if roll < 0.6:
            inside = f"{name}[{own}] = {self.value(index, name)}" + f" + {name}[{own}]" * (self.rng.random() < 0.3)
        elif roll < 0.8:
            inside = f"{name}[{own}] = {self.value(index, name)}; B[i, {index}] += {name}[{own}]"
        else:
            inside = f"if A[i, {index}] > 0 {{ {name}[{own}] = {self.value(index, name)} }}"
        self.line(f"par {self.extent} {index} {{ {inside} }}")

    def sum(self) -> None:
        """Updates of one element by many threads, or of a few."""
        index, name = self.fresh("a"), self.rng.choice(self.locals_)
        target = self.rng.choice((f"{name}[0]", f"{name}[{index} / 2]", f"C[i, {self.rng.choice('01')}]"))
        word = self.rng.choice(("", "atomic "))
        self.line(f"par {self.extent} {index} {{ {word}{target} += {self.value(index, name)} }}")

    def single(self) -> None:
        """What one thread does, or every thread for itself."""
        roll = self.rng.random()
        name = self.rng.choice(self.locals_)
        if roll < 0.3:
            self.line(f"{name}[{self.rng.randrange(self.extent)}] = {self.value(None)}")
        elif roll < 0.5:
            scalar = self.fresh("s")
            self.line(f"new {scalar}: i32")
            self.line(f"{scalar} = {self.value(None)}")
            self.scalars.append(scalar)
        elif roll < 0.65:
            index = self.fresh("k")
            self.line(f"seq {self.extent} {index} {{ {name}[{index}] += {name}[{self.extent - 1} - {index}] }}")
        elif roll < 0.8:
            index = self.fresh("k")
            self.line(f"seq {self.extent + 64} {index} {{ C[i, 1] += A[i, {index} % {self.extent}] }}")
        else:
            index = self.fresh("b")
            self.line(f"par {self.extent} {index} #thread {{ if {name}[{index}] > 0 {{ {name}[{index}] = 7 }} }}")

    def block(self, head: str, depth: int, turn: str | None = None, orelse: bool = False) -> None:
        kept = list(self.locals_), list(self.pairs), list(self.scalars)
        self.line(f"{head} {{")
        self.loops.append(turn or "1")
        self.steps(depth - 1)
        if orelse:
            self.loops.pop()
            self.locals_, self.pairs, self.scalars = (list(names) for names in kept)
            self.line("} else {")
            self.loops.append("1")
            self.steps(depth - 1)
        self.loops.pop()
        self.locals_, self.pairs, self.scalars = kept
        self.line("}")

    def steps(self, depth: int) -> None:
        for _ in range(self.rng.choice((1, 2, 3))):
            roll = self.rng.random()
            if depth and roll < 0.2:
                turn = self.fresh("q")
                self.block(f"seq {self.rng.choice(('2', '3', 'i + 1', 'K'))} {turn}", depth, turn)
            elif depth and roll < 0.32:
                condition = self.rng.choice(("i > 0", "G[i, 0] > 0", f"{self.locals_[0]}[1] > 2"))
                self.block(f"if {condition}", depth, orelse=self.rng.random() < 0.5)
            elif roll < 0.42:
                self.new()
            elif roll < 0.52:
                self.sum()
            elif roll < 0.64:
                self.single()
            else:
                self.move()

    def text(self) -> str:
        n = self.extent
        self.new()
        if self.rng.random() < 0.6:
            self.new()
        self.steps(2)
        self.line(f"par {n} z {{ B[i, z] += {self.locals_[0]}[{self.bijection('z')}] }}")
        head = f"kernel blocks(A: i32[M, {n}], G: i32[M, {n}], B: i32[M, {n}], C: i32[M, 2], Z: i32[K]) {{"
        return "\n".join([head, "    par M i {", *self.lines, "    }", "}", ""])


def block_program(seed: int) -> str:
    """The program of a seed."""
    return Block(seed).text()


def main() -> None:
    from order_oracle import launches_at, missing
    from stages import mapped

    first, count = (int(text) for text in sys.argv[1:3])
    orders = failed = 0
    for seed in range(first, first + count):
        text = block_program(seed)
        program = mapped(text, **({} if seed % 4 == 0 else SIZES))
        found = missing(program, SIZES)
        orders += sum(len(launch.orders) for launch, _ in launches_at(program.host, SIZES))
        if found:
            failed += 1
            print(f"seed {seed}\n{text}\nmissing {found}\n", flush=True)
    print(f"{count} programs with {orders} orders, {failed} of them lack some")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
