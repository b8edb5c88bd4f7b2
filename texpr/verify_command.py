"""`texpr verify`: checks what `texpr map --json` printed, from the file alone."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from texpr.command_line import Command, option, say
from texpr.command_options import AS_JSON, definitions, json_in, print_json, usage

if TYPE_CHECKING:
    from texpr.polyhedral.verify.stage import Finding

ABOUT = {
    "theta": "launches whose threads and blocks have their digits one to one",
    "iterations": "statements whose iterations run once each",
    "stores": "parameters whose elements are stored once each",
    "d": "accesses whose lanes lie no further apart than d",
    "sectors": "accesses in global memory whose sectors are as said",
    "wavefronts": "accesses in shared memory whose wavefronts are as said",
}


def verify_mapping(file: Path, define: list[str] | None, as_json: bool) -> int:
    """Check a mapping's certificates, digits, iterations and sectors from its JSON alone."""
    from texpr.grammar.diagnostics import fail
    from texpr.polyhedral.verify.integers import FileError
    from texpr.polyhedral.verify.stage import Verdict, verify

    sizes, types, _ = definitions(define)
    if types:
        raise usage("verify takes sizes by -D, and no types")
    data = json_in(file)
    try:
        found = verify(data, sizes)
    except FileError as why:
        raise fail("E0606", f"{file} cannot be verified: {why}", help="write it anew: texpr map … --json") from None
    refuted = any(finding.verdict is Verdict.REFUTED for finding in found)
    if as_json:
        print_json([{"verdict": f.verdict.value, "about": f.about, "text": f.text} for f in found])
    else:
        for line in _report(data, {**data["representative"], **sizes}, found):
            say(line)
    return 1 if refuted else 0


def _report(data: Mapping[str, Any], sizes: Mapping[str, int], found: "list[Finding]") -> Iterator[str]:
    at = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    yield f"kernel {data['kernel']} on {data['target']}{f', at {at}' if at else ''}"
    for about, what in ABOUT.items():
        own = [finding for finding in found if finding.about == about]
        if not own:
            continue
        counts = Counter(finding.verdict.value for finding in own)
        yield f"  {counts['proved']} of {len(own)} {what}"
        yield from (f"    {f.verdict.value}: {f.text}" for f in own if f.verdict.value != "proved")
    others = sum(finding.about == "other" for finding in found)
    if others:
        yield f"  {others} accesses have no lanes: copy engine, tensor cores, protocols between blocks (see --json)"


VERIFY = Command(
    name="verify",
    run=verify_mapping,
    options=(
        option("file", type=Path, metavar="MAPPING", help="what `texpr map --json` printed"),
        option("-D", dest="define", action="append", metavar="NAME=VALUE", help="a free size at another value"),
        AS_JSON,
    ),
)
