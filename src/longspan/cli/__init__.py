"""The command line: picks the command, turns errors into one line and an exit code. Nothing else prints.

Commands are imported when asked for, so that `longspan --help` does not wait for JAX.
"""

import importlib
import sys
from collections.abc import Sequence

from longspan import __version__
from longspan.errors import InputError

DONE, BAD_INPUT, DIVERGED, INTERRUPTED = 0, 2, 3, 130

COMMANDS = {
    "train": "train a recurrent network: longspan train sgd+clr --data nottingham",
    "resume": "go on with a run exactly where it stopped",
    "evaluate": "score a run on a split, as the paper does",
    "sample": "hear, see or read what a run learned: longspan sample RUN -o out.mid",
    "inspect": "see how gradients travel through time in a trained model",
    "search": "random search over a recipe's settings: longspan search sgd+c --data jsb --trials 20",
    "worker": "join a study from anywhere its storage can be reached",
    "reproduce": "the paper's tables, cell by cell: longspan reproduce table1 --budget 2h",
    "compare": "settings and scores of several runs side by side",
    "report": "one HTML page of runs, studies or results: longspan report RUN -o report.html",
    "data": "list, get, describe or import data sets",
    "doctor": "versions, devices, kernels, data found, write access",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `longspan` command."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(overview())
        return DONE
    if arguments[0] in ("-V", "--version"):
        sys.stdout.write(f"longspan {__version__}\n")
        return DONE
    name, *rest = arguments
    try:
        if name not in COMMANDS:
            raise InputError(f"unknown command {name!r}: expected one of {', '.join(COMMANDS)}")
        return importlib.import_module(f"longspan.cli.{name}").run(rest)
    except InputError as error:
        sys.stderr.write(f"longspan: {error}\n")
        return BAD_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("longspan: stopped\n")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return DONE


def overview() -> str:
    """What `longspan --help` says."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {purpose}" for name, purpose in COMMANDS.items()]
    return "\n".join(
        [
            f"longspan {__version__}: train recurrent networks well, and see why training them is hard",
            "",
            "usage: longspan COMMAND [...]      longspan COMMAND --help says more",
            "",
            *lines,
            "",
            "exit codes: 0 done, 2 bad input, 3 diverged, 130 interrupted",
            "",
        ]
    )
