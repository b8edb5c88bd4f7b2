"""`texpr cache list` and `texpr cache clear`."""

from typing import Annotated

import typer

from texpr.command_options import AsJson, print_json

cache_app = typer.Typer(no_args_is_help=True, help="The cache of compiled binaries.")


@cache_app.command(name="list")
def cache_list(as_json: AsJson = False) -> None:
    """List the entries with their sizes."""
    from texpr.cache import cache_folder, entries, folder_fault

    found = entries()
    if fault := folder_fault():
        typer.echo(f"warning: the cache is not used: {fault}", err=True)
    if as_json:
        print_json([{"key": key, "bytes": size, "intact": right} for key, size, right in found])
        return
    for key, size, right in found:
        typer.echo(f"{size:>10} {key}{'' if right else '  DAMAGED'}")
    typer.echo(f"{len(found)} entries in {cache_folder() or 'no folder: caching is off'}")


@cache_app.command(name="clear")
def cache_clear(damaged: Annotated[bool, typer.Option("--damaged", help="only damaged entries")] = False) -> None:
    """Remove entries."""
    from texpr.cache import clear, folder_fault

    if fault := folder_fault():
        typer.echo(f"warning: the cache is not used: {fault}", err=True)
    typer.echo(f"removed {clear(only_damaged=damaged)} entries")
