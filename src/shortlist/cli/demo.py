"""`shortlist demo`: from the bundled data to recommendations, with nothing to prepare."""

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
            metavar="DIR", help="Directory to save the best model to; a Shortlist model that is there is replaced."
        ),
    ] = "models/online-retail",
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Fit, compare and use three models on bundled data: a year of a gift shop's orders.

    For example:

      shortlist demo
    """
    from shortlist.data import datasets, splits
    from shortlist.evaluation.evaluate import DEFAULT_METRICS

    say = Output(ctx, as_json=as_json, quiet=quiet)
    check_target(out)
    data = datasets.load("online-retail")
    say.note(f"{data.info.title}: {described(data.interactions)}")
    split = splits.by_time(data.interactions, test=0.1, repeats="drop")
    tried = try_models(_models(), split, list(DEFAULT_METRICS), say, threads=threads)
    comparison = compared(tried)
    best = max(tried, key=lambda one: one.result["ndcg@20"]).model
    best.save(out)
    example = _example(best, data, split, threads)
    commands = _commands(out, example)
    if say.json:
        say.document(
            {
                "data": {"name": data.info.name, **summary(data.interactions)},
                **as_document(split, tried, comparison),
                "example": example,
                "saved": {"model": type(best).__name__, "path": out},
                "commands": [command for _, command in commands],
            }
        )
        return
    show_split(split, say)
    say.line()
    show_results(tried, comparison, say)
    say.line()
    _show_example(example, best, say)
    say.line()
    say.line(f"Saved the {_name(tried, best)} to {out}. Now try:")
    for comment, command in commands:
        say.line()
        say.line(f"# {comment}")
        say.line(command)


def _models() -> "list[Recommender]":
    """The models as they come: no setting is chosen for this data."""
    from shortlist.recommenders.ease import EASE
    from shortlist.recommenders.ials import IALS
    from shortlist.recommenders.popularity import Popularity

    return [Popularity(), EASE(), IALS()]


def _example(model: "Recommender", data: "Dataset", split: "Split", threads: int | None) -> dict[str, Any]:
    """What a customer had and is offered: the first with some 20 to 60 products for whom two or more came true."""
    titles = dict(data.items.select("product", "title").iter_rows())
    contexts = split.truth.contexts.ids()
    offers = model.recommend(contexts, n=_SHOWN, threads=threads).ids
    lengths = split.history.by_context.lengths
    fair = [k for k, length in enumerate(lengths) if 20 <= length <= 60]
    came_true = [k for k in fair if len(set(offers[k]) & set(split.truth.history(contexts[k]))) >= 2]
    chosen = (came_true or fair)[0]
    customer, recommended = contexts[chosen], offers[chosen]
    latest = list(dict.fromkeys(reversed(split.history.history(customer))))[:_SHOWN]
    later = set(split.truth.history(customer))
    return {
        "customer": customer,
        "bought": [{"product": one, "title": titles[one]} for one in latest],
        "recommended": [{"product": one, "title": titles[one], "bought_later": one in later} for one in recommended],
    }


def _show_example(example: dict[str, Any], model: "Recommender", say: Output) -> None:
    hits = sum(one["bought_later"] for one in example["recommended"])
    kind = type(model).__name__
    say.title(f"Customer {example['customer']}, an example where {kind} did well: {hits} of {_SHOWN} came true")
    rows = [
        [bought["title"], new["title"], "bought" if new["bought_later"] else ""]
        for bought, new in zip(example["bought"], example["recommended"])
    ]
    say.table(["bought last", "recommended", "later"], rows)


def _commands(out: str, example: dict[str, Any]) -> list[tuple[str, str]]:
    """What to try next: every one works as it stands, in this order."""
    path = shlex.quote(out)
    item = example["bought"][0]
    commands = [
        ("the same recommendations by product code, with scores", f"shortlist recommend {path} {example['customer']}"),
        (f"products like {item['title'].strip()}", f"shortlist similar {path} {item['product']}"),
        ("for someone who was never seen", f"shortlist recommend {path} --history {item['product']}"),
        ("what is in the model", f"shortlist inspect {path}"),
        ("the data as a file", "shortlist datasets online-retail --out online-retail.csv"),
        (
            "models on a file: put your own and its columns here",
            "shortlist evaluate online-retail.csv --context customer --item product --time time --model popularity "
            "--model ials --set ials.dim=32",
        ),
    ]
    called = program()
    return [(comment, f"{called}{command.removeprefix('shortlist')}") for comment, command in commands]


def _name(tried: list[ModelResult], best: "Recommender") -> str:
    result = next(one.result for one in tried if one.model is best)
    return f"{result.model} (ndcg@20 {result['ndcg@20']:.4f})"
