"""Draw the README's first picture, docs/img/idea.svg, with the demo's numbers of bench/readme.json.

make readme        or        python -P bench/idea.py
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "bench" / "readme.json"
PICTURE = ROOT / "docs" / "img" / "idea.svg"

INK, FAINT, PAPER = "#24292e", "#57606b", "#ffffff"
COLOURS = ("#0072b2", "#009e73", "#d55e00")  # Okabe and Ito's palette

TITLES = {
    "lab-size": ("Laboratory A", "size: radius, perimeter, area"),
    "lab-surface": ("Laboratory B", "surface: texture, smoothness, symmetry"),
    "lab-outline": ("Laboratory C", "outline: compactness, concavity, …"),
}
ROWS, BOX, GAP, TOP = 5, 92, 18, 40


def text(
    x: float,
    y: float,
    said: str,
    *,
    size: int = 13,
    fill: str = INK,
    anchor: str = "start",
    bold: bool = False,
) -> str:
    """One line of text."""
    weight = ' font-weight="700"' if bold else ""
    style = f'font-size="{size}" fill="{fill}" text-anchor="{anchor}"{weight}'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(said)}</text>'


def box(x: float, y: float, width: float, height: float, colour: str, *, fill: str = PAPER) -> str:
    """A box with round corners."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="{fill}" '
        f'stroke="{colour}" stroke-width="1.6"/>'
    )


def arrow(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    """An arrow from one point to another."""
    return (
        f'<path d="M {x:g} {y:g} C {x + 70:g} {y:g} {to_x - 80:g} {to_y:g} {to_x - 9:g} {to_y:g}" '
        f'fill="none" stroke="{colour}" stroke-width="2.2"/>'
        f'<path d="M {to_x - 10:g} {to_y - 5:g} L {to_x:g} {to_y:g} L {to_x - 10:g} {to_y + 5:g} Z" '
        f'fill="{colour}"/>'
    )


def table(x: float, y: float, columns: int, colour: str) -> str:
    """A little table: the same rows in every party."""
    cells = [
        f'<rect x="{x + 17 * c:g}" y="{y + 12 * r:g}" width="15" height="10" fill="{colour}" '
        f'fill-opacity="{0.25 + 0.13 * ((3 * r + 2 * c) % 5):.2f}"/>'
        for r in range(ROWS)
        for c in range(columns)
    ]
    return "".join(cells)


def draw(demo: dict[str, Any]) -> str:
    """The picture."""
    alone, joint = demo["models"][:3], demo["models"][-1]
    height = TOP + 3 * BOX + 2 * GAP + 16
    parts = [
        text(20, 24, "Three parties, the same 426 patients, different columns", size=15, bold=True),
        text(560, 24, "One joint model", size=15, bold=True),
    ]
    middle = TOP + 1.5 * BOX + GAP
    for k, row in enumerate(alone):
        name = row["name"].removesuffix(" alone")
        y, colour = TOP + k * (BOX + GAP), COLOURS[k]
        title, columns = TITLES[name]
        parts += [
            box(20, y, 345, BOX, colour),
            table(34, y + 17, min(5, row["n_features"] // 2), colour),
            text(132, y + 28, title, bold=True),
            text(132, y + 48, columns, size=11, fill=FAINT),
            text(132, y + 74, f"alone: log loss {row['log_loss']:.3f}, AUC {row['auc']:.3f}", size=12),
            arrow(365, y + BOX / 2, 560, middle + 16 * (k - 1), colour),
        ]
    parts += [
        text(462, TOP + 20, "one number per row,", size=12, fill=FAINT, anchor="middle"),
        text(462, TOP + 36, "never the columns", size=12, fill=FAINT, anchor="middle"),
        box(560, middle - 78, 320, 156, INK, fill="#f6f8fa"),
        text(580, middle - 48, "all 30 columns, nobody pooled them", bold=True),
        text(
            580, middle - 20, f"log loss {joint['log_loss']:.3f}, AUC {joint['auc']:.3f}", size=15, bold=True
        ),
        text(580, middle + 2, "on 143 patients not seen in training", size=12, fill=FAINT),
        text(580, middle + 32, f"{demo['rounds']} rounds, and a proof: no other weights have", size=12),
        text(580, middle + 50, "an objective more than 0.0001 % lower", size=12),
    ]
    said = "; ".join(
        f"{row['name']}: log loss {row['log_loss']:.3f}, AUC {row['auc']:.3f}" for row in (*alone, joint)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" width="900" '
        f'height="{height}" role="img" font-family="Helvetica, Arial, sans-serif">'
        f"<title>{escape(said)}</title>"
        f'<rect width="900" height="{height}" fill="{PAPER}"/>' + "\n".join(parts) + "</svg>\n"
    )


def main() -> None:
    """Draw and write."""
    numbers = json.loads(MEASURED.read_text(encoding="utf-8"))
    PICTURE.write_text(draw(numbers["demo"]), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
