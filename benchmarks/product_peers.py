"""What products of matrices are compared with: torch (cuBLAS), QuACK and Triton where they are installed, and a sum
that only reads."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contractions import Product

PEERS = ("quack", "triton", "ampere")  # beside torch
BUILT = {  # how to come by them
    "quack": "its wheels: quack-kernels, nvidia-cutlass-dsl",
    "triton": "its wheel: triton, which PyTorch's for Linux brings along",
    "ampere": "the same wheel",
}
HALVES = ("f16", "bf16")
READ_ONLY = """extern "C" __global__ void __launch_bounds__(512)
read_only(const uint4* from, unsigned* to, long long n) {
  unsigned found = 0;
  for (int k = 0; k < 4; ++k) {
    const long long at = (blockIdx.x * 4ll + k) * 512 + threadIdx.x;
    if (at < n) { const uint4 x = from[at]; found += x.x ^ x.y ^ x.z ^ x.w; }
  }
  found = __reduce_add_sync(~0u, found);
  if (threadIdx.x % 32 == 0) to[blockIdx.x * 16 + threadIdx.x / 32] = found;
}"""


def torch_type(torch: Any, name: str) -> Any:
    return {
        "f32": torch.float32, "tf32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16,
        "i8": torch.int8, "i32": torch.int32, "f8e4m3": torch.float8_e4m3fn,
    }[name]  # fmt: skip


@cache
def peer(name: str) -> Any:
    """A peer's product of matrices, `(a, b, out=…)`; None where it is not installed."""
    try:
        match name:
            case "quack":
                from quack.gemm_interface import gemm
            case "triton":
                from peers.triton_products import gemm
            case "ampere":
                from peers.triton_ampere import gemm
            case _:
                raise ValueError(name)
    except ImportError as why:  # of what a peer's own packages load, too
        print(f"{name}: {why}")
        return None
    return gemm


def peers_of(torch: Any, product: "Product", a: Any, b: Any, more: Sequence[str]) -> dict[str, Callable[[], Any]]:
    """What else makes a product, by name; the first is what is meant by its time."""
    out = torch.empty((*a.shape[:-1], b.shape[-1]), device="cuda", dtype=torch_type(torch, product.result))
    if product.dtype == "i8":
        return {"torch": lambda: torch._int_mm(a, b, out=out)}
    if product.dtype == "f8e4m3":
        one = torch.ones((), device="cuda")

        def scaled(fast: bool) -> Any:
            return torch._scaled_mm(a, b, one, one, out_dtype=out.dtype, use_fast_accum=fast)

        return {"torch": lambda: scaled(False), "fast": lambda: scaled(True)}
    torch.backends.cuda.matmul.allow_tf32 = product.dtype == "tf32"
    own = torch.empty_like(out, dtype=a.dtype)
    found: dict[str, Callable[[], Any]] = {"torch": lambda: torch.matmul(a, b, out=own)}
    if product.dtype not in HALVES:
        return found
    for name in more:
        gemm = peer(name)
        if gemm is not None:
            found[name] = _into(gemm, a, b, torch.empty_like(own))
    return found


def _into(gemm: Any, a: Any, b: Any, theirs: Any) -> Callable[[], Any]:
    def act() -> Any:
        gemm(a, b, out=theirs)
        return theirs

    return act


def runs(torch: Any, act: Callable[[], Any]) -> bool:
    """Whether a peer takes such operands."""
    try:
        act()
        torch.cuda.synchronize()
    except Exception as wrong:  # of whatever kind a peer's own are
        said = str(wrong).splitlines() or [""]
        print(f"  a peer refuses: {type(wrong).__name__}: {said[0][:100]}")
        return False
    return True


def read_only(torch: Any, arrays: list[Any]) -> Any:
    """A launch that reads all of one of the arrays, and nearly nothing else."""
    import cupy

    kernel, chunks = cupy.RawKernel(READ_ONLY, "read_only"), arrays[0].numel() * arrays[0].element_size() // 16
    blocks = -(-chunks // 2048)
    sums = torch.empty(16 * blocks, device="cuda", dtype=torch.int32)

    def act(number: int, stream: int) -> None:
        with cupy.cuda.ExternalStream(stream):
            own = arrays[number % len(arrays)].data_ptr()
            kernel((blocks,), (512,), (own, sums.data_ptr(), chunks))

    return act
