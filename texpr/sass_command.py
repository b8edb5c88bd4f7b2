"""`texpr sass`: the machine code of a kernel, with the lines of the program that it comes from."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Unpack

from texpr.command_line import Command, option, say
from texpr.command_options import AS_JSON, COMPILED, print_json, usage
from texpr.commands import Given, compiled_of, say_findings

if TYPE_CHECKING:
    from texpr.codegen.line_table import Line
    from texpr.codegen.sass import Listing, Loop

UNNAMED = ("arithmetic", "others")  # groups of many opcodes


def sass(whole: bool, work: bool, as_json: bool, **given: Unpack[Given]) -> None:
    """Print the main loop of each kernel as machine code (SASS), under the lines of the program."""
    from texpr.codegen.line_table import line_tables
    from texpr.codegen.sass import listings
    from texpr.codegen.toolchain import disassembled
    from texpr.execute import placed_cubin_of
    from texpr.profile_command import lines_of

    compiled = compiled_of(given)
    if not compiled.target.startswith("cuda:"):
        raise usage("machine code is that of a GPU: the target is cuda, or cuda:sm_XX")
    cubin = placed_cubin_of(compiled.build)
    found = listings(disassembled(cubin), line_tables(cubin))
    if as_json:
        print_json({"schema": 1, "kernel": compiled.name, "target": compiled.target, "kernels": _data(found)})
        return
    say_findings(compiled.warnings, compiled.dynamic)
    texts = lines_of(compiled)
    for listing in found:
        for line in report(listing, texts, whole=whole, work=work):
            say(line)


def report(listing: "Listing", texts: Mapping[tuple[str, int], str], *, whole: bool, work: bool) -> Iterator[str]:
    """What a kernel is made of, and its main loop, or all of it."""
    from texpr.codegen.sass import GROUPS, LOCAL, OTHERS

    loop = listing.main_loop()
    inner = listing.within(loop)
    where = "no loop" if loop is None else f"{len(inner)} in the main loop, {loop.first:04x} to {loop.last:04x}"
    memory = "" if listing.of(LOCAL) else f"; no {LOCAL}"
    yield f"{listing.kernel}: {len(listing.instructions)} instructions, {where}{memory}"
    yield "     all    loop"
    for group in (*GROUPS, OTHERS):
        every, here = listing.of(group), listing.of(group, loop) if loop else ()
        if every:
            opcodes = Counter(each.opcode for each in every)
            named = "" if group in UNNAMED else f": {', '.join(opcode for opcode, _ in opcodes.most_common())}"
            yield f"  {len(every):6}  {len(here):6}  {group}{named}"
    yield ""
    yield from _code(listing, None if whole else loop, texts, work=work)
    yield ""


def _code(
    listing: "Listing", loop: "Loop | None", texts: Mapping[tuple[str, int], str], *, work: bool
) -> Iterator[str]:
    from texpr.codegen.sass import OTHERS

    shown, others = "", 0
    for each in listing.within(loop):
        if work and each.group == OTHERS:
            others += 1
            continue
        yield from _left_out(others)
        others = 0
        line = _line(each.line, texts)
        if line != shown:
            yield line
        shown = line
        yield f"  {each.address:04x}  {each.predicate:>6} {each.opcode} {each.operands}".rstrip()
    yield from _left_out(others)


def _left_out(count: int) -> Iterator[str]:
    if count:
        yield f"  {'':4}  {'':>6} … {count}"


def _line(line: "Line | None", texts: Mapping[tuple[str, int], str]) -> str:
    text = None if line is None else texts.get((line.file, line.number))
    return "between statements" if line is None or text is None else f"{line.file}:{line.number}  {text.strip()}"


def _data(found: "tuple[Listing, ...]") -> list[dict[str, object]]:
    kernels: list[dict[str, object]] = []
    for listing in found:
        main = listing.main_loop()
        kernels.append(
            {
                "name": listing.kernel,
                "loops": [[loop.first, loop.last] for loop in listing.loops()],
                "main_loop": None if main is None else [main.first, main.last],
                "instructions": [
                    {
                        "address": each.address,
                        "predicate": each.predicate,
                        "opcode": each.opcode,
                        "operands": each.operands,
                        "line": None if each.line is None else [each.line.file, each.line.number],
                    }
                    for each in listing.instructions
                ],
            }
        )
    return kernels


SASS = Command(
    name="sass",
    run=sass,
    options=(
        *COMPILED,
        option("--work", action="store_true", help="leave out addresses, conditions and moves; say how many they are"),
        option("--all", dest="whole", action="store_true", help="all of each kernel, not its main loop alone"),
        AS_JSON,
    ),
)
