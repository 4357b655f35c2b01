"""Compared methods as a section of an HTML report and as Markdown with pictures, from the same values."""

import textwrap
from html import escape

from longspan.arms.verdicts import BEST_OF, CLAIMS, JUDGED, LEVEL, MARGIN, Judgment
from longspan.metrics import METRICS, duration, number
from longspan.reporting import markup
from longspan.reporting.methods_charts import curve_charts, pair_charts, rate_charts
from longspan.reporting.methods_report import LETTERS, ArmValue, MethodsReport, PairValue, SetValue, outlook
from longspan.reporting.svg import picture
from longspan.reproduction.tables import figures_on_test

REGIME = (
    "Every method of the paper gets the same slots: the same drawn learning rates, sizes and scales, the same initial "
    "weights, the same cap in updates, no dropout, no averaged weights, nothing tuned by hand. An estimate is the "
    "expected best validation score of n slots, in nats per frame or symbol; bands and intervals are 95 % of a "
    "bootstrap over slots and not adjusted for the number of claims. A basin is the decades of learning rate whose "
    "slots come within 0.05 nats of the arm's best. A recipe, tuned by hand, is run without dropout and averaging at "
    "the same cap, to see whether the search holds settings as good, and is never counted."
)
RULES = (
    f"A claim is judged on the mean gap over its data sets, by thresholds that were fixed before the runs: it helps or "
    f"hurts if the gap is significant at {100 * LEVEL:g} % by Holm's rule and the data sets agree, makes no difference "
    f"if the interval lies within {MARGIN['music']:g} nats of zero, rivals if its lower end is above "
    f"-{MARGIN['music']:g}. Otherwise, and while slots are missing, it is undecided. Claims on "
    f"{' and '.join(JUDGED)} are judged, the others described."
)
VERDICT_KINDS = {"helps": "good", "rivals": "good", "hurts": "bad", "does not rival": "bad"}
ARM_HEADER = ("slots", "best of n", "best", "recipe", "failed", "basin", "s/slot", "winner, test", "paper")
PAIR_HEADER = ("mean difference", "better in", "wider basin, decades", "fewer failures", "to tune")
CLAIM_HEADER = ("verdict", "mean gap", "p", "paper's", "by data set, and what would decide it")
CURVES_ABOUT = (
    "Expected best of n slots with 95 % bands, against slots and against the processor seconds they took on average."
)
RATES_ABOUT = (
    "Every slot against its effective learning rate; a cross is a slot that failed and scores as the rates do."
)
PAIRS_ABOUT = "What a letter changed in each slot, against the learning rate; crosses where one of the two failed."


def progress_of(report: MethodsReport) -> str:
    """How far the studies are, in a sentence."""
    parts = []
    for each in report.sets:
        gaps = f" ({each.used} before the first gap are used)" if each.used < each.trained else ""
        parts.append(f"{each.data} {each.trained} of {each.wanted} slots{gaps}")
    missing = [data for data in BEST_OF if data not in {each.data for each in report.sets}]
    if missing and report.judgments:
        parts.append(f"not begun: {', '.join(missing)}")
    return "; ".join(parts)


def decided(report: MethodsReport) -> int:
    """Number of claims with a verdict."""
    return sum(judgment.verdict != "undecided" for judgment in report.judgments)


def claim_cells(report: MethodsReport, judgment: Judgment) -> list[str]:
    """The row of a claim, after its statement, in the order of `CLAIM_HEADER`."""
    ends, claim = judgment.interval, judgment.claim
    gaps = "; ".join(f"{data} {gap:+.2f}" for data, gap in judgment.gaps.items())
    return [
        judgment.verdict,
        "" if judgment.mean is None or ends is None else f"{judgment.mean:+.3f} ({ends[0]:+.3f} to {ends[1]:+.3f})",
        "" if judgment.p is None else f"{judgment.p:.2g}",
        f"{report.paper[claim.statement]:+.3f}",
        "; ".join(part for part in (gaps, outlook(judgment, report.sets)) if part),
    ]


def arm_cells(arm: ArmValue, data: str) -> list[str]:
    """The row of an arm, after its name, in the order of `ARM_HEADER`."""
    curve, paper = arm.curve, figures_on_test(arm.arm, data)
    metric = METRICS[next(iter(paper))] if paper else METRICS["log_likelihood"]
    test, winner = "", arm.winner
    if winner is not None and metric.name in winner.test:
        spread = winner.spread.get(metric.name)
        test = number(winner.test[metric.name]) + ("" if spread is None else f" ± {number(spread)}")
    if winner is not None and winner.diverged:
        test += f" ({winner.diverged} of {winner.seeds} diverged)"
    return [
        f"{len(arm.slots)} of {arm.wanted}",
        f"{curve.value[-1]:.2f} ({curve.low[-1]:.2f} to {curve.high[-1]:.2f}), n {len(curve.value)}",
        number(arm.best),
        number(arm.recipe),
        f"{arm.failed}",
        "" if arm.basin is None else number(arm.basin, 1),
        "" if arm.seconds is None else f"{arm.seconds:.0f}",
        "" if winner is None else f"slot {winner.slot}, {test}",
        number(paper[metric.name]) if paper else "",
    ]


def pair_cells(pair: PairValue) -> list[str]:
    """The row of a pair of arms, after its name, in the order of `PAIR_HEADER`."""
    (basin_low, basin_high), (fewer_low, fewer_high) = pair.basin_interval, pair.failures_interval
    return [
        f"{sum(pair.differences) / len(pair.differences):+.3f}",
        f"{100 * pair.improvement:.0f} % of {len(pair.differences)} slots",
        f"{pair.basin:+.1f} ({basin_low:+.1f} to {basin_high:+.1f})",
        f"{100 * pair.fewer_failures:+.0f} % ({100 * fewer_low:+.0f} to {100 * fewer_high:+.0f})",
        {True: "easier", False: "harder", None: "—"}[pair.easier],
    ]


def letter_rows(of: SetValue) -> list[list[str]]:
    """What each letter does, added to plain descent and kept in the full set."""
    rows = []
    for each in of.letters:
        gaps = ((each.added, each.added_interval), (each.kept, each.kept_interval))
        shown = [f"{gap:+.2f} ({low:+.2f} to {high:+.2f})" for gap, (low, high) in gaps]
        rows.append([f"{each.letter.upper()}, {LETTERS[each.letter]}", *shown, str(each.n)])
    return rows


LETTER_HEADER = ("added to sgd", "kept in the full set", "n")


def methods_content(report: MethodsReport) -> str:
    """The section of an HTML page, without its heading."""
    parts = [f"<p>{escape(REGIME)}</p>", markup.tiles(_tiles(report))]
    if report.judgments:
        rows = [_claim_row(report, judgment) for judgment in report.judgments]
        parts += ["<h3>The paper’s claims</h3>", f"<p>So far: {escape(progress_of(report))}.</p>"]
        parts.append(markup.table("Claims", ["claim", *CLAIM_HEADER], rows, "gaps in nats", "prose"))
        parts.append(markup.details("How a claim is judged", f"<p>{escape(markup.true_minus(RULES))}</p>"))
    for each in report.sets:
        parts.append(f"<h3>{escape(each.data)}</h3>")
        parts.append(f"<p>{escape(_marks(each))}</p>")
        parts += _set_parts(each)
    return "".join(parts)


def _tiles(report: MethodsReport) -> list[str]:
    slots = sum(each.trained for each in report.sets)
    seconds = sum((arm.seconds or 0) * len(arm.slots) for each in report.sets for arm in each.arms)
    made = [markup.tile("Slots trained", f"{slots:,}", f"{duration(seconds)} of one core")]
    if report.judgments:
        beside = f"{len(report.judgments) - decided(report)} undecided"
        made.insert(0, markup.tile("Claims with a verdict", f"{decided(report)} of {len(CLAIMS)}", beside))
    return made


def _claim_row(report: MethodsReport, judgment: Judgment) -> str:
    verdict, *numbers, details = claim_cells(report, judgment)
    cells = [markup.marked_cell(markup.badge(verdict, VERDICT_KINDS.get(verdict, "")))]
    cells += [markup.number_cell(text) for text in numbers]
    cells.append(markup.cell(details.replace(" -", " −"), "words"))
    return markup.row(judgment.claim.statement, cells)


def _set_parts(of: SetValue) -> list[str]:
    arms = [markup.row(arm.arm, [markup.number_cell(text) for text in arm_cells(arm, of.data)]) for arm in of.arms]
    parts = [markup.table(f"Arms on {of.data}", ["", *ARM_HEADER], arms)]
    if of.letters:
        rows = [markup.row(name, [markup.number_cell(text) for text in cells]) for name, *cells in letter_rows(of)]
        parts.append(markup.table("What each letter does, in nats", ["", *LETTER_HEADER], rows))
    parts += [f"<p>{CURVES_ABOUT}</p>", markup.grid([markup.chart_figure(chart) for chart in curve_charts(of)])]
    parts += [f"<p>{RATES_ABOUT}</p>", markup.grid([markup.chart_figure(chart) for chart in rate_charts(of)], "small")]
    if of.pairs:
        pairs = [
            markup.row(_pair_name(pair), [markup.number_cell(text) for text in pair_cells(pair)]) for pair in of.pairs
        ]
        parts += [markup.table("Pairs of arms, slot by slot", ["", *PAIR_HEADER], pairs), f"<p>{PAIRS_ABOUT}</p>"]
        parts.append(markup.grid([markup.chart_figure(chart) for chart in pair_charts(of)], "small"))
    return parts


def _marks(of: SetValue) -> str:
    return (
        f"At most {of.updates:,} updates per slot; a slot that fails scores {markup.true_minus(number(of.floor))}, the "
        f"rates of single keys or symbols. Definition {of.definition}, version {', '.join(of.versions)}, kernels for "
        f"{', '.join(of.instruction_sets)}."
    )


def _pair_name(pair: PairValue) -> str:
    return f"{pair.better} over {pair.worse}"


def methods_markdown(report: MethodsReport, letters: MethodsReport | None, folder: str) -> tuple[str, dict[str, str]]:
    """The page as Markdown, and the pictures it shows by their names in `folder`, relative to the page."""
    parts = [
        "# Which methods help\n",
        _filled(
            "What `longspan compare-methods` found; [methods.md](methods.md) has the protocol. This page is generated "
            "from `results/claims` by `longspan reproduce --render-only`; do not edit it."
        ),
        _filled(REGIME),
        "## The paper's claims\n",
        _filled(f"So far: {progress_of(report)}. Of {len(CLAIMS)} claims {decided(report)} have a verdict."),
        _filled(RULES),
        markup.markdown_table(
            ("claim", *CLAIM_HEADER), [[j.claim.statement, *claim_cells(report, j)] for j in report.judgments]
        ),
    ]
    pictures: dict[str, str] = {}
    for each in report.sets:
        parts.append(f"## {each.data}\n")
        parts += _set_markdown(each, folder, pictures)
    for each in letters.sets if letters else []:
        parts.append(f"## Letter by letter on {each.data}\n")
        parts.append(
            _filled("Each letter alone, and what is lost without it; only described, with unadjusted intervals.")
        )
        parts.append(markup.markdown_table(("", *LETTER_HEADER), letter_rows(each)))
    return "\n".join(parts), pictures


def _set_markdown(of: SetValue, folder: str, pictures: dict[str, str]) -> list[str]:
    parts = [
        _filled(_marks(of)),
        markup.markdown_table(("", *ARM_HEADER), [[arm.arm, *arm_cells(arm, of.data)] for arm in of.arms]),
    ]
    drawn = {
        "best": (CURVES_ABOUT, curve_charts(of)),
        "rates": (RATES_ABOUT, rate_charts(of)),
        "pairs": (PAIRS_ABOUT, pair_charts(of)),
    }
    for name, (about, charts) in drawn.items():
        if name == "pairs" and of.pairs:
            parts.append(
                markup.markdown_table(("", *PAIR_HEADER), [[_pair_name(pair), *pair_cells(pair)] for pair in of.pairs])
            )
        if charts:
            pictures[f"{of.data}-{name}.svg"] = picture(charts, f"{of.data}: {about}")
            parts.append(f"{_filled(about)}\n![{of.data}: {about}]({folder}/{of.data}-{name}.svg)\n")
    return parts


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"
