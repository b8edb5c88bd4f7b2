"""Instructions, places, targets that ARCHITECTURE says how to add: edits that add one of each, and their programs."""

from added_words import Edits

ATOM: Edits = {
    "polyhedral/mapped/atoms.py": [
        (
            "def mma(dtype: DType, sums: DType,",
            "def vote(target: Target) -> Atom:\n"
            '    """Every lane gets the number of lanes whose value is not 0."""\n'
            "    lanes = target.warp_size\n"
            "    term = Term(dim=0, stride=const(1), unit=Unit.LANE)\n"
            "    each = Layout(shape=(const(lanes),), terms=(term,))\n"
            "    same = Layout(shape=(), terms=(term,), copies=(lanes,))\n"
            '    return _atom("vote", Team.WARP, SM_80, ("lanes", "vote"), source=_held(F32, each), '
            "target=_held(F32, same))\n\n\n"
            "def mma(dtype: DType, sums: DType,",
        )
    ],
    "codegen/include/texpr/lanes.cuh": [
        (
            "// The value of lane `source` (0 to 31).\n",
            "TX_FN f32 vote(f32 x, Here = Here::now()) {\n"
            "  return static_cast<f32>(__popc(__ballot_sync(0xffffffffu, x != 0.0f)));\n}\n"
            "// The value of lane `source` (0 to 31).\n",
        )
    ],
    "codegen/include/texpr/host/lanes.hpp": [
        (
            "template <class T>\ninline T shuffle(T",
            "inline f32 vote(f32 x, Here here = Here::now()) {\n"
            "  struct Operands {\n    f32 x, count;\n  };\n  Operands mine{x, 0.0f};\n"
            "  const auto perform = [](Operands* const* all) {\n"
            "    for (int i = 0; i < 32; ++i) {\n"
            "      for (int j = 0; j < 32; ++j) all[i]->count += all[j]->x != 0.0f ? 1.0f : 0.0f;\n    }\n  };\n"
            '  host::gather(32, "vote", mine, perform, here);\n  return mine.count;\n}\n'
            "template <class T>\ninline T shuffle(T",
        )
    ],
}
ATOM_PROGRAM = """
import numpy as np
from texpr.codegen.host_run import HostArray, HostModule
from texpr.polyhedral.mapped import atoms
from texpr.polyhedral.target import parse_target

atom = atoms.vote(parse_target("cuda:sm_90a"))
text = f'''#include "{atom.wrapper.header}"
extern "C" __global__ void k(float* Y) {{
  const tx::Global<float> y(Y, "Y");
  y.store(tx::lane(), {atom.wrapper.function}(tx::lane() % 3 == 0 ? 1.0f : 0.0f));
}}
TX_EXPORT(k);
'''
y = np.zeros(32, np.float32)
assert HostModule(text, werror=True).launch("k", [HostArray(y.ctypes.data, y.nbytes)], (1, 1, 1), 32) is None
assert np.all(y == 11)
"""

MONOID: Edits = {
    "polyhedral/mapped/monoids.py": [
        (
            '    _scalar("Product",',
            '    _scalar("Nearest", lambda dtype: np.inf, lambda a, b: np.where(abs(b) < abs(a), b, a), _exact),\n'
            '    _scalar("Product",',
        )
    ],
    "codegen/include/texpr/monoid.cuh": [
        (
            "template <class T>\nstruct Product :",
            "template <class T>\nstruct Nearest : Scalar<T, Min> {\n"
            "  static constexpr bool kSymmetric = false;\n"
            "  static TX_FN T identity() { return highest<T>(); }\n"
            "  static TX_FN T combine(T a, T b) { return abs(b) < abs(a) ? b : a; }\n};\n"
            "template <class T>\nstruct Product :",
        )
    ],
}
MONOID_PROGRAM = """
import functools
import numpy as np
from texpr.codegen.host_run import HostArray, HostModule
from texpr.polyhedral.mapped.monoids import MONOIDS

x = np.asarray([3 - 2 * k for k in range(16)] + [40 + k for k in range(16)], np.float32)
monoid = MONOIDS["Nearest"]
partials = [monoid.lift(value, 0) for value in x]
assert monoid.result(functools.reduce(monoid.combine, partials))[0] == 1
text = '''#include "texpr/lanes.cuh"
#include "texpr/monoid.cuh"
extern "C" __global__ void k(float* Y) {
  const tx::Global<float> y(Y, "Y");
  y.store(tx::lane(), tx::reduce_lanes<tx::Nearest<float>>(y.load(tx::lane())));
}
TX_EXPORT(k);
'''
assert HostModule(text, werror=True).launch("k", [HostArray(x.ctypes.data, x.nbytes)], (1, 1, 1), 32) is None
assert np.all(x == 1)
"""

PLACE: Edits = {
    "polyhedral/mapped/places.py": [
        ('    LANE = "lane"\n', '    LANE = "lane"\n    HALF = "half warp"\n'),
        (
            "    Place.VECTOR: PlaceRow(",
            "    Place.HALF: PlaceRow(lambda at: at.thread // (at.warp_size // 2), Scope.THREAD),\n"
            "    Place.VECTOR: PlaceRow(",
        ),
    ],
    "codegen/cuda/stand.py": [
        (
            "    Place.CLUSTER: _Coordinate(",
            '    Place.HALF: _Coordinate(name="half", text="tx::thread() / 16", threads=lambda warp: warp // 2),\n'
            "    Place.CLUSTER: _Coordinate(",
        )
    ],
}
PLACE_PROGRAM = """
from dataclasses import replace

import numpy as np
import texpr
from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.host_run import HostArray, HostModule
from texpr.codegen.plan import plan
from texpr.grammar.index.expr import const
from texpr.polyhedral.mapped.places import Place
from texpr.polyhedral.mapped.tree import Define
from texpr.polyhedral.mapped.walks import map_launches, map_nodes
from texpr.polyhedral.simulate.stage import simulate

# i = 32 * i_warp + i_lane   becomes   16 * half + i_lane % 16
kernel = texpr.parse("kernel f(A: i32[128], C: i32[128]) { par 128 i #vector(1) { C[i] = A[i] + 1 } }").only
made = kernel.compile("cuda-host:sm_90a", stop_after="map").mapping.program
half = {
    Place.WARP: lambda d: replace(d, place=Place.HALF, weight=16, radix=const(8)),
    Place.LANE: lambda d: replace(d, radix=const(16)),
}
def halved(digits):
    return tuple(half.get(d.place, lambda d: d)(d) for d in digits)
def define(node):
    return replace(node, digits=halved(node.digits)) if isinstance(node, Define) else node
def launch(old):
    return replace(old, digits=halved(old.digits), body=map_nodes(old.body, define))
program = replace(made, host=map_launches(made.host, launch))
A = np.arange(128, dtype=np.int32)
assert np.array_equal(simulate(program, {"A": A, "C": A * 0})["C"], A + 1)
text = emit_cuda(plan(program), program.target).source
assert "tx::thread() / 16" in text
C = np.zeros_like(A)
arrays = [HostArray(a.ctypes.data, a.nbytes) for a in (A, C)]
assert HostModule(text, werror=True).launch("f_0", arrays, (1, 1, 1), 128) is None
assert np.array_equal(C, A + 1)
"""

TARGET: Edits = {
    "polyhedral/target.py": [
        ('    CUDA_HOST = "cuda-host"\n', '    CUDA_HOST = "cuda-host"\n    SIMULATED = "simulated"\n')
    ],
    "texpr/pipeline.py": [
        (
            "        case Family.CPU:\n",
            "        case Family.SIMULATED:\n"
            "            from texpr.polyhedral.mapped.show import show\n\n"
            "            manifest = make_manifest(kernel, proved, planned, made.target, Passed(), VERSION)\n"
            '            return Emission(main="graph", files={"graph": show(planned).encode()}, manifest=manifest)\n'
            "        case Family.CPU:\n",
        )
    ],
    "texpr/execute.py": [
        (
            "        case Family.CPU:\n",
            "        case Family.SIMULATED:\n"
            "            from texpr.polyhedral.simulate.stage import simulate\n\n"
            "            def run(*arrays: Any, stream: Any = None, **sizes: int) -> None:\n"
            "                given = dict(zip((b.name for b in build.kernel.params), arrays, strict=True))\n"
            '                found = simulate(build.result("plan"), given, sizes=sizes)\n'
            "                for name, array in given.items():\n"
            "                    array[...] = found[name]\n\n"
            "            return run\n"
            "        case Family.CPU:\n",
        )
    ],
}
TARGET_PROGRAM = """
import numpy as np
import texpr

kernel = texpr.parse("kernel f(A: f32[N], C: f32[N]) { par N i { C[i] = A[i] + 1.0 } }").only
made = kernel.compile("simulated:sm_90a")
A, C = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
made(A, C)
assert np.array_equal(C, A + 1) and "i_lane" in made.source
try:
    kernel.compile("simulate:sm_90a")
except texpr.TExprError as refused:
    assert "`simulated:sm_90a`" in str(refused) and "cuda-host:sm_XX and simulated:sm_XX" in str(refused)
else:
    raise AssertionError("no such target")
"""

OPERATOR: Edits = {
    "polyhedral/mapped/operators.py": [
        (
            "\n\nOperator = Generic |",
            "\n\n@dataclass(frozen=True, slots=True, kw_only=True)\n"
            "class Fill:\n"
            '    """`target = value` for each value of the indices `over`, all by one thread."""\n\n'
            "    id: str\n    target: View\n    value: Const\n    over: Box\n"
            "    digits: tuple[str, ...] = ()\n    unused: Unused | None = None\n"
            "    span: Span = field(default=NO_SPAN, compare=False, repr=False)\n\n"
            "    @property\n    def each(self) -> Generic:\n"
            "        where = self.target.subscripts\n"
            "        leaf = Bind(id=self.id, buffer=self.target.buffer, subscripts=where, value=self.value)\n"
            "        return Generic(id=self.id, leaf=leaf, digits=self.digits, unused=self.unused)\n\n"
            "    @property\n    def names(self) -> frozenset[str]:\n"
            "        return self.each.names | _extents(self.over)\n\n"
            "    @property\n    def reads(self) -> tuple[Read, ...]:\n        return ()\n\n"
            "    @property\n    def writes(self) -> tuple[Element, ...]:\n        return self.each.writes\n\n\n"
            "Operator = Fill | Generic |",
        )
    ],
    "polyhedral/mapped/expand.py": [
        (
            "        case Elementwise():\n",
            "        case Fill():\n"
            "            return _only(_loops(operator.over, (operator.each,), operator))\n"
            "        case Elementwise():\n",
        ),
        (
            "from texpr.polyhedral.mapped.tree import ",
            "from texpr.polyhedral.mapped.operators import Fill\nfrom texpr.polyhedral.mapped.tree import ",
        ),
    ],
    "codegen/cuda/body.py": [
        (
            "            case Contract() | Unload():\n",
            "            case Fill(over=((_, extent),)):\n"
            "                own, first = access.corner(node.target.first(node.over), True)\n"
            "                count = cursor.number(extent).text\n"
            '                self.out.line(f"tx::fill({own}, {first}, {count}, {node.value.value}f);")\n'
            "            case Contract() | Unload():\n",
        ),
        (
            "from texpr.polyhedral.mapped.expand import expand\n",
            "from texpr.polyhedral.mapped.expand import expand\nfrom texpr.polyhedral.mapped.operators import Fill\n",
        ),
    ],
    "codegen/include/texpr/update.cuh": [
        (
            "\n}  // namespace tx\n",
            "\ntemplate <class Array, class T>\n"
            "TX_FN void fill(const Array& array, int first, int count, T value) {\n"
            "  for (int i = first; i < first + count; ++i) array.store(i, value);\n}\n\n}  // namespace tx\n",
        )
    ],
}
OPERATOR_PROGRAM = """
from dataclasses import replace

import numpy as np
import texpr
from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.host_run import HostArray, HostModule
from texpr.codegen.plan import plan
from texpr.polyhedral.mapped.operators import Fill
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.tree import Loop
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.mapped.walks import map_launches, map_nodes
from texpr.polyhedral.orders.find import launch_orders
from texpr.polyhedral.simulate.stage import simulate

text = "kernel f(C: f32[32, 16]) { par 32 i { seq 16 k #ordered { C[i, k] = 0.5 } } }"
made = texpr.parse(text).only.compile("cuda-host:sm_90a", stop_after="map").mapping.program

def filled(node):
    if not isinstance(node, Loop):
        return node
    (each,) = node.body
    target = View(buffer="C", subscripts=each.leaf.subscripts, dtype=each.leaf.value.dtype)
    over = ((node.index, node.extent),)
    return Fill(id="F", target=target, value=each.leaf.value, over=over, digits=each.digits, unused=each.unused)

host = map_launches(made.host, lambda launch: replace(launch, body=map_nodes(launch.body, filled)))
program = replace(made, host=host)
assert "F: fill" in show(program)
assert launch_orders(host[0], made.buffers, made.proved.program, 32) == ()
C = np.zeros((32, 16), np.float32)
assert np.all(simulate(program, {"C": C})["C"] == 0.5)
text = emit_cuda(plan(program), program.target).source
assert "tx::fill(C, " in text and HostModule(text, werror=True).launch(
    "f_0", [HostArray(C.ctypes.data, C.nbytes)], (1, 1, 1), host[0].threads
) is None
assert np.all(C == 0.5)
"""
