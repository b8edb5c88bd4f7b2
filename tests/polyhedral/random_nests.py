"""Random programs of several nests over few buffers, as text: what moves have to do with."""

import random


def random_nests(seed: int, *, free: bool = False) -> str:
    """A program that writes workspaces and an output in nests of `par`s and `seq`s, and reads them shifted, turned and
    reversed; often wrong. With `free` its sizes are N and M, otherwise small numbers."""
    return _Nests(random.Random(seed), free).kernel()


class _Nests:
    def __init__(self, rng: random.Random, free: bool) -> None:
        self.rng, self.free = rng, free
        self.extents = ["N", "N", "M", "3"] if free else ["3", "3", "4", "1", "0", "2"]
        self.count = 0
        self.buffers: dict[str, int] = {}

    def kernel(self) -> str:
        self.buffers = {name: self.rng.choice((1, 1, 2)) for name in ("t", "u", "Y")}
        room = "N + M + 8" if self.free else "12"
        shapes = {name: f"f32[{', '.join([room] * rank)}]" for name, rank in self.buffers.items()}
        chain = self.rng.random() < 0.5
        lines = [f"new {name}: {shapes[name]}" for name in ("t", "u")] if chain else []
        lines += self.chain() if chain else [line for _ in range(self.rng.choice((2, 2, 3))) for line in self.nest()]
        if self.rng.random() < 0.2:
            lines = ["seq 2 h {", *lines, "}"]
        params = [f"{name}: {shape}" for name, shape in shapes.items() if name == "Y" or not chain]
        return f"kernel nests(X: f32[{room}], {', '.join(params)}) {{\n" + "\n".join(lines) + "\n}"

    def chain(self) -> list[str]:
        """t from X, u from t, Y from both: each iteration its own elements, mostly."""
        extent, inner = self.rng.choice(self.extents), self.rng.choice(self.extents)
        lines = list[str]()
        reads = ["X[{0}]"]
        for name, rank in self.buffers.items():
            i, j = self.fresh(), self.fresh()
            own = f"{i}, {j}" if rank == 2 else i
            other = self.rng.choice((own, own, own, own.replace(i, f"2 - {i}")))
            value = self.rng.choice(reads).format(i, own, other)
            body = [f"{name}[{own}] = {value}"]
            if rank == 2 or self.rng.random() < 0.3:
                kind = "par" if rank == 2 else "seq"
                more = f"{name}[{own}] {'=' if rank == 2 else '+='} {value}"
                body = [*(body if rank == 1 else ()), f"{kind} {inner} {j} {{", "    " + more, "}"]
            kind = "par" if self.rng.random() < 0.9 else "seq"
            lines += [f"{kind} {extent} {i} {{", *("    " + line for line in body), "}"]
            if rank == 1:
                reads = [*reads, f"{name}[{{0}}]", f"{name}[{{0}}] * X[{{0}}]"]
            elif self.rng.random() < 0.7:
                reads = [f"{name}[{{0}}, 0]"]
        return lines

    def nest(self) -> list[str]:
        pars = self.rng.random() < 0.75
        loops = [("par" if pars else "seq", self.extent(()), self.fresh())]
        while len(loops) < 3 and self.rng.random() < 0.45:
            kind = "par" if self.rng.random() < 0.5 else "seq"
            loops.append((kind, self.extent(tuple(loops)), self.fresh()))
        lines = list[str]()
        for depth, (kind, extent, index) in enumerate(loops):
            lines.append("    " * depth + f"{kind} {extent} {index} {{")
            last = depth == len(loops) - 1
            for _ in range(self.rng.choice((1, 1, 2)) if last else self.rng.choice((0, 0, 0, 1))):
                lines += ["    " * (depth + 1) + line for line in self.leaf(tuple(loops[: depth + 1]))]
        return lines + ["    " * depth + "}" for depth in reversed(range(len(loops)))]

    def fresh(self) -> str:
        self.count += 1
        return f"k{self.count}"

    def extent(self, loops: tuple[tuple[str, str, str], ...]) -> str:
        if loops and self.rng.random() < 0.15:
            return f"{loops[0][2]} + 1"
        return self.rng.choice(self.extents)

    def leaf(self, loops: tuple[tuple[str, str, str], ...]) -> list[str]:
        name = self.rng.choice(list(self.buffers))
        value = self.rng.choice(("1.0", "X[0]", *[self.read(loops) for _ in range(4)]))
        op = self.rng.choice(("=", "=", "+=", "max="))
        line = f"{self.target(name, loops)} {op} {value}"
        if self.rng.random() < 0.1:
            return [f"if {loops[0][2]} {self.rng.choice(('<', '>=', '!='))} 1 {{ {line} }}"]
        if self.rng.random() < 0.15:
            self.count += 1
            return [f"let v{self.count} = {value}", f"{self.target(name, loops)} {op} v{self.count} * v{self.count}"]
        return [line]

    def target(self, name: str, loops: tuple[tuple[str, str, str], ...]) -> str:
        """An element that differs between the iterations of the `par`s, mostly."""
        wanted = [index for kind, _, index in loops if kind == "par"] or [index for _, _, index in loops]
        chosen = [*wanted, "0", "0"][: self.buffers[name]]
        if len(wanted) < 2:
            self.rng.shuffle(chosen)
        return f"{name}[{', '.join(chosen)}]"

    def read(self, loops: tuple[tuple[str, str, str], ...]) -> str:
        name = self.rng.choice([*self.buffers, "t", "u"])
        indices = [index for _, _, index in loops]
        subscripts = [self.subscript(indices) for _ in range(self.buffers[name])]
        return f"{name}[{', '.join(subscripts)}]"

    def subscript(self, indices: list[str]) -> str:
        index = self.rng.choice(indices)
        return self.rng.choice((index, index, index, indices[0], indices[0], f"{index} + 1", f"2 - {index}", "0"))
