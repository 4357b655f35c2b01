"""Pages that need no network: one file with its style, its values and the one script that a browser may run in it.

Text from outside becomes part of an HTML page by `html.escape`, and part of a Markdown page by `files.in_markdown`.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources

import msgspec


def asset(package: str, name: str) -> str:
    """A text file in the folder `assets` of a package."""
    return resources.files(package).joinpath("assets", name).read_text(encoding="utf-8")


def script(package: str, names: Sequence[str]) -> str:
    """Scripts of a package joined to one, between the line breaks that the template puts around it."""
    return "\n".join(['"use strict";', *(asset(package, name) for name in names)])


def fill(template: str, slots: Mapping[str, str]) -> str:
    """The template with its slots, such as `{title}`, filled; what is put in may itself contain anything."""
    return re.sub(r"\{(\w+)\}", lambda found: slots.get(found[1], found[0]), template)


def policy(*scripts: str) -> str:
    """What a browser lets a page do: run these scripts, and fetch nothing from anywhere."""
    hashes = " ".join(f"'sha256-{_digest(each)}'" for each in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:"


def _digest(script: str) -> str:
    """The checksum of a script as the template writes it, on lines of its own."""
    return base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode()


def embedded(values: object, name: str = "") -> str:
    """Values for the script, encoded so that a `<` inside them cannot end the element."""
    content = msgspec.json.encode(values).decode().replace("<", "\\u003c")
    labeled = f' id="{name}"' if name else ""
    return f'<script type="application/json"{labeled}>{content}</script>'
