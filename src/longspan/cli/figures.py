"""Names of scores as people read them, and numbers as tables show them."""

SHOWN = {
    "log_likelihood": "log-likelihood, nats",
    "accuracy": "accuracy %",
    "accuracy_union": "union accuracy %",
    "perplexity": "perplexity",
    "bits_per_character": "bits per character",
    "error_rate": "wrong sequences %",
    "squared_error": "squared error",
}


def format_figure(name: str, value: float | None, error: float | None = None) -> str:
    """A score as a table shows it: accuracies and error rates in percent; with its standard `error`, an estimate."""
    if value is None:
        return ""
    if error is not None:
        return f"{value:.2f} ± {error:.2f} (estimate)"
    return f"{100 * value:.2f}" if name.startswith(("accuracy", "error_rate")) else f"{value:.3f}"


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
