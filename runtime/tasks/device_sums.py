"""Sums of arrays on a GPU: a kernel for each type, as text that the driver compiles.

    target[i] += source[i]      for i < count

Floats of 16 bits are added in f32 and rounded once, as NumPy does it; integers wrap around.
"""

from string import Template

THREADS, BLOCKS = 256, 1024  # of a launch, at most; a thread takes every so many-th element

_FRAME = Template("""
.visible .entry add_$name(.param .u64 target, .param .u64 source, .param .u64 count)
{
    .reg .pred %done;
    .reg .b16 %h<2>, %zero;
    .reg .b32 %block, %threads, %thread, %blocks, %w<2>;
    .reg .b64 %to, %from, %count, %i, %step, %a, %b, %d<2>;
    .reg .f32 %f<2>;
    .reg .f64 %g<2>;
    mov.b16 %zero, 0;
    ld.param.u64 %to, [target];
    ld.param.u64 %from, [source];
    ld.param.u64 %count, [count];
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %blocks, %nctaid.x;
    mul.wide.u32 %step, %threads, %blocks;
    mul.wide.u32 %i, %block, %threads;
    cvt.u64.u32 %a, %thread;
    add.u64 %i, %i, %a;
next:
    setp.ge.u64 %done, %i, %count;
    @%done bra end;
    mad.lo.u64 %a, %i, $size, %to;
    mad.lo.u64 %b, %i, $size, %from;
    $body
    add.u64 %i, %i, %step;
    bra next;
end:
    ret;
}
""")


def _plain(kind: str, add: str, registers: str) -> str:
    x, y = f"%{registers}0", f"%{registers}1"
    return f"ld.global.{kind} {x}, [%a]; ld.global.{kind} {y}, [%b]; {add} {x}, {x}, {y}; st.global.{kind} [%a], {x};"


def _half(widen: str, narrow: str) -> str:
    loads = "ld.global.b16 %h0, [%a]; ld.global.b16 %h1, [%b];"
    wide = "".join(f" {widen.format(k=k)}" for k in (0, 1))
    return f"{loads}{wide} add.rn.f32 %f0, %f0, %f1; {narrow} %h0, %f0; st.global.b16 [%a], %h0;"


_BODIES = {
    "8": (1, _plain("u8", "add.u16", "h")),
    "16": (2, _plain("u16", "add.u16", "h")),
    "32": (4, _plain("u32", "add.u32", "w")),
    "64": (8, _plain("u64", "add.u64", "d")),
    "float16": (2, _half("cvt.f32.f16 %f{k}, %h{k};", "cvt.rn.f16.f32")),
    "bfloat16": (2, _half("mov.b32 %w{k}, {{%zero, %h{k}}}; mov.b32 %f{k}, %w{k};", "cvt.rn.bf16.f32")),
    "float32": (4, _plain("f32", "add.rn.f32", "f")),
    "float64": (8, _plain("f64", "add.rn.f64", "g")),
}
NAMES = {f"{sign}int{bits}": f"add_{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)} | {
    name: f"add_{name}" for name in _BODIES if "float" in name
}  # of kernels, by the name that NumPy gives a type

TEXT = ".version 7.0\n.target sm_80\n.address_size 64\n" + "".join(
    _FRAME.substitute(name=name, size=size, body=body) for name, (size, body) in _BODIES.items()
)
