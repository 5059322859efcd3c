"""`shortlist demo`: from bundled data to recommendations, without preparation."""

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist.cli import options as opt
from shortlist.cli.evaluate import ModelResult, as_document, compared, show_results, try_models
from shortlist.cli.events import described, summary
from shortlist.cli.fit import check_target
from shortlist.cli.next_steps import program
from shortlist.cli.output import Output
from shortlist.cli.split_options import show_split

if TYPE_CHECKING:
    from shortlist.data.datasets import Dataset
    from shortlist.data.splits import Split
    from shortlist.recommenders.base import Recommender

_SHOWN = 10


def demo(
    ctx: typer.Context,
    out: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Directory for the best model. An existing Shortlist model there is replaced."
        ),
    ] = "models/online-retail",
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Fit and compare three models on bundled data (a year of a gift shop's orders), then make recommendations.

    For example:

      shortlist demo
    """
    from shortlist.data import datasets, splits
    from shortlist.evaluation.evaluate import DEFAULT_METRICS

    output = Output(ctx, as_json=as_json, quiet=quiet)
    check_target(out)
    data = datasets.load("online-retail")
    output.note(f"{data.info.title}: {described(data.interactions)}")
    split = splits.by_time(data.interactions, test=0.1, repeats="drop")
    tried = try_models(_models(), split, list(DEFAULT_METRICS), output, threads=threads)
    comparison = compared(tried)
    best = max(tried, key=lambda candidate: candidate.result["ndcg@20"]).model
    best.save(out)
    example = _example(best, data, split, threads)
    commands = _commands(out, example)
    if output.json:
        output.document(
            {
                "data": {"name": data.info.name, **summary(data.interactions)},
                **as_document(split, tried, comparison),
                "example": example,
                "saved": {"model": type(best).__name__, "path": out},
                "commands": [command for _, command in commands],
            }
        )
        return
    show_split(split, output)
    output.line()
    show_results(tried, comparison, output)
    output.line()
    _show_example(example, best, output)
    output.line()
    output.line(f"Saved {_name(tried, best)} to {out}. Next, try:")
    for comment, command in commands:
        output.line()
        output.line(f"# {comment}")
        output.line(command)


def _models() -> "list[Recommender]":
    """Return the models with default settings; nothing is tuned for this data."""
    from shortlist.recommenders.ease import EASE
    from shortlist.recommenders.ials import IALS
    from shortlist.recommenders.popularity import Popularity

    return [Popularity(), EASE(), IALS()]


def _example(model: "Recommender", data: "Dataset", split: "Split", threads: int | None) -> dict[str, Any]:
    """Return the purchases and recommendations of a customer.

    It is the first customer with 20 to 60 products and at least 2 correct recommendations.
    """
    titles = dict(data.items.select("product", "title").iter_rows())
    contexts = split.truth.contexts.ids()
    lists = model.recommend(contexts, n=_SHOWN, threads=threads).ids
    lengths = split.history.by_context.lengths
    typical = [k for k, length in enumerate(lengths) if 20 <= length <= 60]
    correct = [k for k in typical if len(set(lists[k]) & set(split.truth.history(contexts[k]))) >= 2]
    chosen = (correct or typical)[0]
    customer, recommended = contexts[chosen], lists[chosen]
    latest = list(dict.fromkeys(reversed(split.history.history(customer))))[:_SHOWN]
    later = set(split.truth.history(customer))
    return {
        "customer": customer,
        "bought": [{"product": code, "title": titles[code]} for code in latest],
        "recommended": [
            {"product": code, "title": titles[code], "bought_later": code in later} for code in recommended
        ],
    }


def _show_example(example: dict[str, Any], model: "Recommender", output: Output) -> None:
    hits = sum(product["bought_later"] for product in example["recommended"])
    name = type(model).__name__
    output.title(f"Example: {name} for customer {example['customer']}; {hits} of {_SHOWN} products were bought later")
    rows = [
        [bought["title"], new["title"], "bought" if new["bought_later"] else ""]
        for bought, new in zip(example["bought"], example["recommended"])
    ]
    output.table(["last bought", "recommended", "later"], rows)


def _commands(out: str, example: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the commands to try next, with comments. They work as printed, in this order."""
    path = shlex.quote(out)
    item = example["bought"][0]
    commands = [
        ("the same recommendations by product code, with scores", f"shortlist recommend {path} {example['customer']}"),
        (f"products similar to {item['title'].strip()}", f"shortlist similar {path} {item['product']}"),
        (
            "recommendations for a new customer with one product",
            f"shortlist recommend {path} --history {item['product']}",
        ),
        ("show what is in the model", f"shortlist inspect {path}"),
        ("write the data to a file", "shortlist datasets online-retail --out online-retail.csv"),
        (
            "evaluate models on a file; replace it with your own file and columns",
            "shortlist evaluate online-retail.csv --context customer --item product --time time --model popularity "
            "--model ials --set ials.dim=32",
        ),
    ]
    called = program()
    return [(comment, f"{called}{command.removeprefix('shortlist')}") for comment, command in commands]


def _name(tried: list[ModelResult], best: "Recommender") -> str:
    result = next(candidate.result for candidate in tried if candidate.model is best)
    return f"{result.model} (ndcg@20 {result['ndcg@20']:.4f})"
