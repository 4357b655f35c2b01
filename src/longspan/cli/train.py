"""`longspan train`: from a recipe and a data set to a trained model and its scores."""

from pathlib import Path

from longspan.cli import machine
from longspan.cli.loading import load_data
from longspan.cli.options import parse_train
from longspan.training.runs import DataRecord, Run, next_run_path


def run(arguments: list[str]) -> int:
    options = parse_train(arguments)
    config = options.config
    content = load_data(config.data, options.data_dir, quiet=options.watching.json, span=config.span)
    path = options.run_dir or next_run_path(Path("runs"), config)
    created = Run.create(path, config, DataRecord.of(content), machine.describe(config.threads))
    machine.prepare(config.threads)
    from longspan.cli import session

    return session.run_to_end(created, content, options.watching)
