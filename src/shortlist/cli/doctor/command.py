"""`shortlist doctor`: check the packages, the machine, and whether Shortlist works."""

from typing import TYPE_CHECKING

import typer

from shortlist._phrases import count
from shortlist.cli import options as opt
from shortlist.cli.output import Output

if TYPE_CHECKING:
    from shortlist.cli.doctor.checks import Report


def doctor(
    ctx: typer.Context,
    config: opt.Config = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Check this installation: packages, threads, CPU, memory, GPU, compiler, extras, and a self-test.

    Prints how to fix each problem. The exit code is 1 if something is broken.

    For example:

      shortlist doctor

      shortlist doctor --json > doctor.json
    """
    from dataclasses import asdict

    from shortlist._version import __version__
    from shortlist.cli.doctor import checks
    from shortlist.cli.doctor.packages import requirements

    output = Output(ctx, as_json=as_json, quiet=quiet)
    report = checks.Report()
    base, extras = requirements()
    output.note("checking packages")
    checks.check_packages(report, base)
    output.note("checking the machine")
    threads = checks.check_threads(report)
    checks.check_processor(report, threads)
    checks.check_memory(report)
    checks.check_gpu(report)
    output.note("compiling a kernel")
    checks.check_compiler(report)
    checks.check_extras(report, extras)
    output.note("running the self-test")
    checks.check_work(report)
    failed = report.with_state("failed")
    if output.json:
        chapters = {name.lower(): [asdict(result) for result in results] for name, results in report.chapters.items()}
        output.document({"ok": not failed, "shortlist": __version__, **chapters})
    else:
        _show(report, output)
    if failed:
        raise typer.Exit(1)


def _show(report: "Report", output: Output) -> None:
    marks = {"ok": "", "note": "(!) ", "failed": "FAILED: "}
    for chapter, results in report.chapters.items():
        output.title(chapter)
        output.facts([(f"  {result.name}", marks[result.state] + result.found) for result in results])
        output.line()
    failed, notes = report.with_state("failed"), report.with_state("note")
    if failed:
        output.line(f"{count(len(failed), 'problem')} to fix:")
    else:
        output.line("Everything works." if not notes else "Everything works. Suggestions:")
    for result in [*failed, *notes]:
        if result.advice:
            output.line(f"  {result.name}: {result.advice}")
