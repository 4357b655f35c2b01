"""`longspan train`: from a recipe and a data set to a trained model and its scores."""

from pathlib import Path

from longspan.cli import machine
from longspan.cli.options import parse_train
from longspan.training.runs import DataRecord, Run, next_run_path


def run(arguments: list[str]) -> int:
    options = parse_train(arguments)
    machine.prepare(options.config.threads)
    from longspan.cli import session

    content = session.load_data(options.config, options.data_dir, quiet=options.watching.json)
    path = options.run_dir or next_run_path(Path("runs"), options.config)
    environment = machine.describe(options.config.threads)
    created = Run.create(path, options.config, DataRecord.of(content), environment)
    return session.run_to_end(created, content, options.watching)
