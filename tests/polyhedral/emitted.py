"""Hand-built graphs emitted as CUDA and run on the CPU by the host headers."""

from typing import Any

import numpy as np
from hand_built import Graph

from texpr.codegen.cuda.emit import CudaText, emit_cuda
from texpr.codegen.host_run import HostArgument, HostArray, HostModule, HostReport, HostTensorMap
from texpr.codegen.plan import plan
from texpr.grammar.index.value import index_value
from texpr.grammar.numerics import storage
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.walks import launches


class Emitted:
    """A graph's text, and its launches run on the CPU."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.planned: PlannedProgram = plan(graph.program)
        self.text: CudaText = emit_cuda(self.planned, graph.program.target)

    def run(self, module: HostModule, arrays: dict[str, Any], seed: int = 0) -> HostReport | None:
        """All launches on the arrays; the first finding."""
        sizes = {**self.graph.sizes}
        for buffer in self.graph.program.kernel.params:
            for extent, size in zip(buffer.shape, arrays[buffer.name].shape, strict=True):
                sizes.setdefault(getattr(extent, "name", ""), size)
        memory = dict(arrays)
        for name, buffer in self.graph.program.buffers.items():
            if name not in memory and buffer.memory.value == "global":
                shape = [int(index_value(e, sizes)) for e in buffer.shape]
                memory[name] = np.zeros(shape, storage(buffer.dtype))
        for words in self.graph.program.words:
            shape = [int(index_value(e, sizes)) for e in words.shape] or [1]
            memory[words.name] = np.zeros(shape, np.uint32)
        for launch in launches(self.graph.program.host):
            symbol = self.text.symbols[launch.name]
            packed = [self._argument(symbol, kind, name, memory, sizes) for kind, name in self.text.arguments[symbol]]
            x, y, z = (int(index_value(g, sizes)) for g in launch.grid)
            shared = self.planned.shared_bytes[launch.name]
            report = module.launch(symbol, packed, (x, y, z), launch.threads, shared, seed)
            if report is not None:
                return report
        return None

    def _argument(
        self, symbol: str, kind: str, name: str, memory: dict[str, Any], sizes: dict[str, int]
    ) -> HostArgument:
        if kind == "size":
            return sizes[name]
        if kind == "map":
            described = self.text.maps[symbol][name]
            data = memory[described.buffer]
            return HostTensorMap(
                address=data.ctypes.data,
                shape=data.shape,
                strides_bytes=data.strides,
                box=described.box,
                element_bytes=data.itemsize,
                swizzle_bytes=described.swizzle_bytes,
            )
        return HostArray(memory[name].ctypes.data, memory[name].nbytes)
