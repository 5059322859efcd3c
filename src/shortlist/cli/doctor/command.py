"""`shortlist doctor`: what is installed, what the machine gives, and whether Shortlist works here."""

from typing import TYPE_CHECKING

import typer

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
    """Check this installation: versions, threads, compiler, memory, GPU, extras, and a small job from end to end.

    The exit code is 1 if something is broken; what to do about it is said.

    For example:

      shortlist doctor

      shortlist doctor --json > doctor.json
    """
    from dataclasses import asdict

    from shortlist._version import __version__
    from shortlist.cli.doctor import checks
    from shortlist.cli.doctor.packages import requirements

    say = Output(ctx, as_json=as_json, quiet=quiet)
    report = checks.Report()
    base, extras = requirements()
    say.note("trying out the packages")
    checks.check_packages(report, base)
    say.note("looking at the machine")
    threads = checks.check_threads(report)
    checks.check_processor(report, threads)
    checks.check_memory(report)
    checks.check_gpu(report)
    say.note("compiling a kernel")
    checks.check_compiler(report)
    checks.check_extras(report, extras)
    say.note("doing a small job")
    checks.check_work(report)
    failed = report.those("failed")
    if say.json:
        chapters = {name.lower(): [asdict(one) for one in findings] for name, findings in report.chapters.items()}
        say.document({"ok": not failed, "shortlist": __version__, **chapters})
    else:
        _show(report, say)
    if failed:
        raise typer.Exit(1)


def _show(report: "Report", say: Output) -> None:
    marks = {"ok": "", "note": "(!) ", "failed": "FAILED: "}
    for chapter, findings in report.chapters.items():
        say.title(chapter)
        say.facts([(f"  {one.name}", marks[one.state] + one.found) for one in findings])
        say.line()
    failed, notes = report.those("failed"), report.those("note")
    if failed:
        say.line(f"{len(failed)} thing{'s' if len(failed) > 1 else ''} must be mended:")
    else:
        say.line("All is well." if not notes else "Everything works; still,")
    for one in [*failed, *notes]:
        if one.advice:
            say.line(f"  {one.name}: {one.advice}")
