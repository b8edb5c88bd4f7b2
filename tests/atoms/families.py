"""All families of atoms that are tried."""

import mma_cases
import monoid_cases
import register_cases
import vector_cases
import wgmma_cases


def families(full=False):
    """Every family with its cases and texts; `full`: for every number of columns too."""
    memory = [vector_cases.family(), register_cases.family(), monoid_cases.family()]
    return [*memory, mma_cases.family(), wgmma_cases.family(full)]


def has(arch, least):
    """A suffix means this architecture only; else it and all later ones."""
    return arch == least if least.endswith("a") else int(arch[3:].rstrip("a")) >= int(least[3:])
