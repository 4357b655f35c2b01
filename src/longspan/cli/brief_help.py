"""Short help of the commands with many options: the common ones, in groups, one sentence each.

`--help` shows it, `--help-all` everything. Texts and defaults are those of the options themselves; here is only which
of them are common, and in which group they stand.
"""

import ast
import dataclasses
import inspect
import textwrap
import types
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from longspan.metrics import setting

WIDTH = 80
INDENT = 26
Groups = dict[str, tuple[str, ...]]

MODEL = ("cell", "output", "hidden_size", "activation", "dropout", "memory")
TRAINING = ("learning_rate", "momentum", "clip", "averaging", "chunk_length", "lanes", "max_epochs", "patience", "seed")

COMMON: dict[str, Groups] = {
    "train": {
        "Data and start": ("data", "start"),
        "Model": MODEL,
        "Training": TRAINING,
        "This run": ("budget", "stop_after", "run_dir", "toml", "explain", "json"),
    },
    "search": {
        "What to search": ("data", "trials", "space", "sampling", "prune"),
        "How": ("workers", "storage", "study", "study_dir", "trial_limit", "json"),
        "Settings that all trials have": ("cell", "output", "hidden_size", "max_epochs", "seed"),
    },
    "sample": {
        "What to write": ("output", "length", "num", "temperature", "seed", "memory"),
        "Continuing something": ("prime", "prime_length", "prime_shift", "omit_prime"),
        "Music": ("melody", "keep", "forbid", "avoid_silence", "tempo", "meter", "instrument", "re_attack"),
        "Other": ("unknown", "json"),
    },
    "data import": {
        "Always": ("name", "replace"),
        "Music": ("frames_per_beat", "transpose", "augment", "onsets", "separate"),
        "Text": ("unit", "vocabulary_size", "minimum_count"),
        "Tables": ("inputs", "targets", "ids", "ahead", "at_end"),
        "Other": ("split", "seed", "data_dir", "json"),
    },
}


class _Option(NamedTuple):
    flag: str
    value: str
    says: str
    default: Any


def brief_help(options: type, command: str, usage: str, default: Any) -> str:
    """The text of the short help of a command in `COMMON`."""
    found = _options_of(options, default)
    about = inspect.cleandoc(options.__doc__ or "")
    parts = [f"usage: {usage} [OPTIONS]", textwrap.fill(" ".join(about.split()), WIDTH)]
    for heading, names in COMMON[command].items():
        lines = [_line(found[name]) for name in names if name in found]
        parts.append("\n".join([f"{heading}:", *lines]))
    rest = len(found) - sum(len(names) for names in COMMON[command].values())
    more = f"All options, {rest} more: " if rest > 0 else "In full: "
    parts.append(f"{more}longspan {command} --help-all\nTab completes flags: longspan completion --help")
    return "\n\n".join(parts) + "\n"


def _options_of(options: type, default: Any) -> dict[str, _Option]:
    """The options by the names of their fields, those of nested groups among them; words without a flag left out."""
    says, kinds = _texts(options), get_type_hints(options, include_extras=True)
    found: dict[str, _Option] = {}
    for field in dataclasses.fields(options):
        kind, extras = _unpacked(kinds[field.name])
        value = _default(field, default)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            found |= _options_of(kind, value)
        elif not any("Positional" in repr(extra) or "Suppress" in repr(extra) for extra in extras):
            named = next((extra.name for extra in extras if getattr(extra, "name", None)), field.name)
            metavar = next((extra.metavar for extra in extras if getattr(extra, "metavar", None)), _value(kind))
            found[field.name] = _Option(named.replace("_", "-"), metavar, says.get(field.name, ""), value)
    return found


def _unpacked(kind: Any) -> tuple[Any, tuple]:
    return (get_args(kind)[0], get_args(kind)[1:]) if get_origin(kind) is Annotated else (kind, ())


def _default(field: dataclasses.Field, default: Any) -> Any:
    if default is not None:
        return getattr(default, field.name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _value(kind: Any) -> str:
    """What stands for the value of an option of some type."""
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if isinstance(kind, types.UnionType) or get_origin(kind) is tuple:
        return _value(next(one for one in get_args(kind) if one not in (type(None), ...)))
    return {bool: "", int: "N", float: "X", Path: "PATH"}.get(_unpacked(kind)[0], "TEXT")


def _texts(options: type) -> dict[str, str]:
    """The first sentence below each field of a dataclass."""
    body = ast.parse(textwrap.dedent(inspect.getsource(options))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            whole = " ".join(str(ast.literal_eval(text.value)).split())
            found[field.target.id] = whole.split(". ")[0].split("; ")[0].rstrip(".")
    return found


def _line(option: _Option) -> str:
    left = f"  --{option.flag} {option.value}".rstrip()
    unsaid = option.default in (None, (), "", False) or "default" in option.says
    shown = f"on; --no-{option.flag}" if option.default is True else setting(option.default)
    says = option.says if unsaid else f"{option.says} ({shown})"
    wrapped = textwrap.wrap(says, WIDTH - INDENT)
    if len(left) > INDENT - 2:
        return "\n".join([left, *(" " * INDENT + line for line in wrapped)])
    first, *others = wrapped or [""]
    return "\n".join([f"{left:<{INDENT}}{first}", *(" " * INDENT + line for line in others)])
