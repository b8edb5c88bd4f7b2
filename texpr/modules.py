"""What users hold: `Module` (the kernels of a file)."""

from collections.abc import Iterator, Mapping

from texpr.grammar.diagnostics import did_you_mean, fail
from texpr.kernels import Kernel


class Module:
    """The kernels of one text: by attribute or by name, `.only` where there is one."""

    def __init__(self, kernels: Mapping[str, Kernel], name: str) -> None:
        self._kernels, self._name = dict(kernels), name

    def __repr__(self) -> str:
        return f"<texpr.Module {self._name}: {', '.join(self._kernels)}>"

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self._kernels.values())

    def __len__(self) -> int:
        return len(self._kernels)

    def __getitem__(self, name: str) -> Kernel:
        if isinstance(name, str) and name in self._kernels:
            return self._kernels[name]
        have, asked = ", ".join(self._kernels) or "none", str(name)[:80]
        raise fail(
            "E0201", f"{self._name} has no kernel {asked!r}; it has {have}", help=did_you_mean(asked, self._kernels)
        )

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("__") or name not in self._kernels:
            raise AttributeError(f"{self._name} has no kernel {name!r}")
        return self._kernels[name]

    @property
    def only(self) -> Kernel:
        """The kernel of a text that has exactly one. Raises E0201 otherwise."""
        if len(self._kernels) != 1:
            have = ", ".join(self._kernels) or "none"
            raise fail("E0201", f"{self._name} has {len(self._kernels)} kernels: {have}", help="name one")
        return next(iter(self._kernels.values()))
