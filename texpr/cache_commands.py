"""`texpr cache list` and `texpr cache clear`."""

from texpr.command_line import Command, complain, option, say
from texpr.command_options import AS_JSON, print_json


def cache_list(as_json: bool) -> None:
    """List the entries of the cache of compiled binaries with their sizes."""
    from texpr.cache import cache_folder, entries, folder_fault

    found = entries()
    if fault := folder_fault():
        complain(f"warning: the cache is not used: {fault}")
    if as_json:
        print_json([{"key": key, "bytes": size, "intact": right} for key, size, right in found])
        return
    for key, size, right in found:
        say(f"{size:>10} {key}{'' if right else '  DAMAGED'}")
    say(f"{len(found)} entries in {cache_folder() or 'no folder: caching is off'}")


def cache_clear(damaged: bool) -> None:
    """Remove entries of the cache of compiled binaries."""
    from texpr.cache import clear, folder_fault

    if fault := folder_fault():
        complain(f"warning: the cache is not used: {fault}")
    say(f"removed {clear(only_damaged=damaged)} entries")


CACHE_COMMANDS = (
    Command(name="cache list", run=cache_list, options=(AS_JSON,)),
    Command(
        name="cache clear",
        run=cache_clear,
        options=(option("--damaged", action="store_true", help="only damaged entries"),),
    ),
)
