"""The version of islpy by the name of its folder, before islpy looks for it: it asks `importlib.metadata`, which loads
what reads mail, archives and sockets, and takes longer than all else that islpy loads.

`isl.py` imports this module before islpy, and nothing else does; who imports `islpy.version` later gets islpy's own.
"""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

_FOLDER = re.compile(r"islpy-(([0-9.]+)([a-z0-9]*))\.dist-info")
NAME = "islpy.version"


def _tell() -> None:
    """Give `islpy.version` what it would find, where there is one folder that says so, and nobody has asked before."""
    spec = importlib.util.find_spec("islpy")
    if NAME in sys.modules or spec is None or spec.origin is None:
        return
    folder = Path(spec.origin).parents[1]
    found = [match for path in folder.glob("islpy-*.dist-info") if (match := _FOLDER.fullmatch(path.name))]
    if len(found) != 1:
        return
    version = ModuleType(NAME)
    numbers = tuple(map(int, found[0][2].split(".")))
    vars(version).update(VERSION_TEXT=found[0][1], VERSION_STATUS=found[0][3], VERSION=numbers, __texpr__=True)
    sys.modules[NAME] = version


def forget_version() -> None:
    """Once islpy is loaded: its own module may be loaded again."""
    if hasattr(sys.modules.get(NAME), "__texpr__"):
        del sys.modules[NAME]


_tell()
