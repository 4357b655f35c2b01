"""`longspan sample`: generate music, text or series from a trained model."""

from pathlib import Path

from longspan import cli, runtime
from longspan.cli import print_json
from longspan.cli.options import parse
from longspan.cli.sample_media import Medium, medium_of, numbered
from longspan.cli.sample_options import SampleOptions, check
from longspan.files import write_atomic
from longspan.training.runs import Run


def run(arguments: list[str]) -> int:
    options = parse(SampleOptions, arguments, "longspan sample")
    sampled = Run.open(options.path)
    check(options, sampled.data.kind_to_sample())
    medium = medium_of(options, sampled.data)
    runtime.prepare(sampled.config.threads)
    import jax

    from longspan.memory import proposal_of, reader_of
    from longspan.sampling.generate import generate
    from longspan.training.setup import trained_model

    samples = generate(
        trained_model(sampled),
        length=medium.length,
        num=options.num,
        key=jax.random.key(options.seed),
        temperature=options.temperature,
        prime=medium.prime,
        end_token=medium.end_token,
        held=medium.held,
        avoid_silence=options.avoid_silence,
        proposal=proposal_of(sampled) if options.memory else None,
        reader=reader_of(sampled),
    )
    finished = [medium.finish(sample) for sample in samples]
    written = _write(medium, finished)
    if options.json:
        print_json(_describe(options, medium, finished, written))
    else:
        medium.show(finished, written)
    return cli.DONE


def _write(medium: Medium, finished: list) -> list[Path]:
    written = []
    for output in medium.outputs:
        for path, sample in zip(numbered(output, len(finished)), finished, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, medium.render(sample, path.suffix.lower()))
            written.append(path)
    return written


def _describe(options: SampleOptions, medium: Medium, finished: list, written: list[Path]) -> dict:
    return {
        "run": str(options.path),
        "seed": options.seed,
        "temperature": options.temperature,
        "num": options.num,
        "length": medium.length,
        "prime": None if options.prime is None else str(options.prime),
        "melody": None if options.melody is None else str(options.melody),
        "prime_length": 0 if medium.prime is None else len(medium.prime),
        "written": [str(path) for path in written],
        "remarks": medium.remarks,
        **medium.describe(finished),
    }
