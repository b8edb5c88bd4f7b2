"""What lies in the registers of a thread on the CPU: parts of it, rounded, chosen and scaled."""

from functools import cache

import cases
import pytest
import register_cases
from compared import wrong

from texpr.codegen.host_run import HostModule

FAMILY = register_cases.family()


@cache
def module():
    return HostModule(FAMILY.texts["sm_80"], werror=True)


@pytest.mark.gxx
@pytest.mark.parametrize("case", FAMILY.cases, ids=lambda case: case.name)
def test_registers_hold_what_numpy_says(case):
    assert wrong(case, cases.run_on_host(module(), case)) == ""
