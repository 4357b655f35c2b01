"""A picture as SVG: one self-contained file that any browser shows and any size suits."""

from longspan.sampling.picture import INK, Box, Colour, Label, Picture

FONT = "font-family='Helvetica, Arial, sans-serif' font-size='11'"


def to_svg(picture: Picture) -> str:
    """The text of an SVG file."""
    width, height = _number(picture.width), _number(picture.height)
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}'>",
        "<title>Piano roll of a longspan sample</title>",
        *map(_box, picture.boxes),
        f"<g {FONT} fill='{_hex(INK)}'>",
        *map(_label, picture.labels),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(box: Box) -> str:
    corners = f" rx='{_number(box.radius)}'" if box.radius else ""
    return (
        f"<rect x='{_number(box.x)}' y='{_number(box.y)}' width='{_number(box.width)}' height='{_number(box.height)}'"
        f"{corners} fill='{_hex(box.colour)}'/>"
    )


def _label(label: Label) -> str:
    # Baselines differ between programs; a shift of a third of the font size centres digits and capitals everywhere.
    return f"<text x='{_number(label.x)}' y='{_number(label.y + 4)}' text-anchor='{label.anchor}'>{label.text}</text>"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
