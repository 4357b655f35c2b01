"""`longspan train`: train a recipe on a data set and score the result."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from longspan import cli, runtime
from longspan.cli.loading import load_data
from longspan.cli.options import origins_of, parse_train
from longspan.cli.output import print_json
from longspan.metrics import setting
from longspan.training.runs import Given, create_run


def run(arguments: list[str]) -> int:
    options = parse_train(arguments)
    config = options.config
    if options.explain:
        show_origins(origins_of(arguments, config), as_json=options.watching.json)
        return cli.DONE
    content = load_data(config.data, options.data_dir, quiet=options.watching.json, span=config.span)
    environment = runtime.prepare(config.threads)
    from longspan.cli import session
    from longspan.training.setup import check_parts

    check_parts(config, content.record, Given())
    created = create_run(options.run_dir, config, content.record, environment)

    return session.run_to_end(created, content, options.watching)


def show_origins(rows: list[tuple[str, Any, str]], *, as_json: bool) -> None:
    """Print every setting with its value and origin."""
    if as_json:
        print_json({name: {"value": value, "from": origin} for name, value, origin in rows})
        return
    table = Table(box=None)
    for column in ("setting", "value", "set by"):
        table.add_column(column)
    for name, value, origin in rows:
        table.add_row(name, escape(setting(value)), escape(origin), style="dim" if origin == "default" else "")
    Console(highlight=False).print(table)
