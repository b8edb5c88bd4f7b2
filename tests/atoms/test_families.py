"""Every case of every family of atoms, under the host header."""

from functools import cache

import cases
import pytest
from compared import wrong
from families import families

from texpr.codegen.host_run import HostModule

FAMILIES = {family.name: family for family in families()}
CASES = [(family.name, number) for family in FAMILIES.values() for number in range(len(family.cases))]


@cache
def module(family):
    return HostModule("".join(FAMILIES[family].texts.values()), werror=True)


@pytest.mark.sampled(4)
@pytest.mark.gxx
@pytest.mark.parametrize(
    ("family", "number"), CASES, ids=[f"{f}-{FAMILIES[f].cases[n].name.replace(' ', '-')}" for f, n in CASES]
)
def test_an_atom_does_on_the_cpu_what_numpy_says(family, number):
    case = FAMILIES[family].cases[number]
    got = cases.run_on_host(module(family), case, seed=number)
    assert isinstance(got, list), got
    assert wrong(case, got) == ""
