"""NumPy, loaded when one of its names is first asked for: it takes longer to load than most kernels to compile.

if TYPE_CHECKING:
    import numpy as np
else:
    from texpr.grammar.numpy_later import np
"""

from typing import Any


class _Later:
    def __getattr__(self, name: str) -> Any:
        import numpy

        return getattr(numpy, name)


np = _Later()
