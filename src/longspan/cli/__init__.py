"""The command line: selects the command, and turns errors into one line and an exit code. Only this package prints.

Commands are imported on demand, so that `longspan --help` does not wait for JAX.
"""

import importlib
import os
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from longspan import __version__
from longspan.errors import InputError, printable, to_paste
from longspan.registry import loaded_plugins, plugins_of_environment
from longspan.terminal import escape_errors, put_out_json, say

DONE, BAD_INPUT, DIVERGED, INTERRUPTED = 0, 2, 3, 130

COMMANDS = {
    "train": "train a recurrent network: longspan train sgd+clr --data nottingham",
    "resume": "continue a run exactly where it stopped",
    "seal": "write checksums of a run's files as they are now",
    "remember": "give a trained run a memory of the song or text: longspan remember RUN",
    "evaluate": "score a run on a split, as the paper does",
    "sample": "generate music or text from a run: longspan sample RUN -o out.mid",
    "play": "write one page in which the model plays, alone or with you: longspan play RUN -o play.html",
    "export": "write a model for other programs: longspan export RUN --format onnx",
    "diagnose": "how far a model remembers, what is wrong with a run, and what to do about it",
    "search": "random search over a recipe's settings: longspan search sgd+c --data jsb --trials 20",
    "worker": "join a study from any machine that can reach its storage",
    "reproduce": "compute the paper's tables, cell by cell: longspan reproduce table1 --budget 2h",
    "compare-methods": "compare the paper's methods by paired searches of equal budget",
    "merge": "join the results of the shards of such a comparison",
    "bridge": "how long a span each method bridges: longspan bridge temporal-order --spans 10 30",
    "compare": "show settings and scores of several runs side by side",
    "report": "write one HTML page about runs, studies or results: longspan report RUN -o report.html",
    "data": "list, get, describe or import data sets",
    "doctor": "show versions, devices, kernels, data found and write access",
    "completion": 'complete commands and flags by Tab: eval "$(longspan completion bash)"',
}

HOMES = {"resume": "train", "remember": "train", "evaluate": "train", "seal": "train", "completion": "doctor"}
"""Commands that are functions of another command's module; every other one is `run` of a module of its own."""

FORMER = {"inspect": "diagnose"}
"""Commands that have gone, and what took their place."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `longspan` command."""
    escape_errors()
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    warnings.showwarning = _show_warning
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()  # otherwise a full disk is noticed while the interpreter exits, which prints a traceback
        return code
    except InputError as error:
        say(f"longspan: {with_flags(str(error), error.fields)}\n", error=True)
        return BAD_INPUT
    except KeyboardInterrupt:
        say("longspan: stopped\n", error=True)
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return DONE
    except OSError as error:
        what = "cannot write the output" if error.filename is None else str(error.filename)
        _discard_output()
        say(f"longspan: {printable(f'{what}: {error.strerror or error}')}\n", error=True)
        return BAD_INPUT


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say(overview())
        return DONE
    if arguments[0] in ("-V", "--version"):
        say(f"longspan {__version__}\n")
        return DONE
    name, *rest = arguments
    if name in FORMER:
        run = next((word for word in rest if not word.startswith("-")), "RUN")
        raise InputError(f"{name} has become {FORMER[name]}, which measures more: {to_paste(FORMER[name], run)}")
    if name not in COMMANDS:
        raise InputError(f"unknown command {name!r}: expected one of {', '.join(COMMANDS)}")
    rest, plugins = split_plugins(rest)
    with loaded_plugins(plugins):
        module = importlib.import_module(f"longspan.cli.{HOMES.get(name, name).replace('-', '_')}")
        return getattr(module, name if name in HOMES else "run")(rest)


def _discard_output() -> None:
    """Discard output that can no longer be written to standard output."""
    with suppress(OSError):  # tests replace standard output by something that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def with_flags(message: str, fields: Sequence[str]) -> str:
    """Replace the Python names of settings in a message by their command-line flags.

    Example:
        >>> with_flags("hidden_size must be at least 1: got 0", ["hidden_size"])
        '--hidden-size must be at least 1: got 0'
    """
    for field in fields:
        # The first mention that is a separate word, and not part of a path.
        message = re.sub(rf"(?<![\w/\\.-]){field}(?![\w/\\-])", f"--{field.replace('_', '-')}", message, count=1)
    return message


def _show_warning(message: Warning | str, *_ignored, **_also) -> None:
    say(f"longspan: {printable(str(message))}\n", error=True)


def split_plugins(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments without `--plugin NAME`, which every command accepts, and the names of the plugins.

    Example:
        >>> split_plugins(["run", "--plugin", "mine.py", "--json"])
        (['run', '--json'], ['mine.py'])
    """
    plugins = plugins_of_environment()
    rest, words = [], iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag != "--plugin":
            rest.append(word)
        elif value or not equals:
            plugins.append(value or next(words, ""))
    if "" in plugins:
        raise InputError("--plugin needs the name of a Python file or module")
    return rest, plugins


def overview() -> str:
    """The text of `longspan --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {purpose}" for name, purpose in COMMANDS.items()]
    return "\n".join(
        [
            f"longspan {__version__}: train recurrent networks well, and see why it is hard",
            "",
            "usage: longspan COMMAND [...]      details: longspan COMMAND --help, all of them: --help-all",
            "",
            *lines,
            "",
            "every command accepts --plugin FILE_OR_MODULE, which adds your own cells, outputs, optimizers or data",
            "exit codes: 0 done, 2 bad input, 3 diverged, 130 interrupted",
            "",
        ]
    )


def print_json(value: object) -> None:
    """Print a value as indented JSON and nothing else."""
    put_out_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def leave_at_once() -> None:
    """End the process as a kill would, which loses nothing that a kill would not; for the second Ctrl-C."""
    for stream in (1, 2):
        if os.isatty(stream):
            os.write(stream, b"\x1b[?25h")  # a progress line hides the cursor
    os.write(2, b"longspan: stopped\n")
    os._exit(INTERRUPTED)
