"""The commands that read ledgers and logs: report, compare, recertify, threats, merge, audit and board."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from smoothheads.cli.common import (
    Form,
    Logs,
    OutFile,
    OutFolder,
    ResultCommand,
    local_folder,
    print_json,
    print_tables,
    say,
)
from smoothheads.errors import ConfigError, LedgerError, printable
from smoothheads.hub import local

if TYPE_CHECKING:
    from smoothheads.results.compare import Comparison


@dataclass(frozen=True, kw_only=True)
class ReportCommand(ResultCommand):
    """Report the average certified radius, certified accuracy at radii, worst class, abstentions and cost,
    each with its standard error or interval; with several logs also the paired differences from the first
    one.

    Reads our ledgers and anybody's log in the field's format (idx label predict radius correct time)."""

    logs: Logs
    """Ledger folders, folders of runs or log files; the first is the baseline of the differences."""
    name: tuple[str, ...] = ()
    """LOG=LABEL: the name of a log in tables and plots."""
    radii: tuple[float, ...] | None = None
    """Radii of the table (default: steps of a quarter)."""
    align: bool = False
    """Compare logs with different images or settings on the images they share."""
    format: Form = "text"
    """How tables are printed."""
    out: OutFolder = None
    """Folder for report.html and the plots as PNG."""
    title: str = "Certified robustness"
    """Title of the page."""

    def run(self) -> None:
        from smoothheads.report import html
        from smoothheads.results.compare import compare
        from smoothheads.results.read import read_logs

        if self.out is not None:
            html.reserve_report(self.out)
        # Names may hold "=", paths rarely do: the last one separates them.
        names = {}
        for text in self.name:
            log, _, label = text.rpartition("=")
            if not label or Path(log) not in self.logs:
                raise ConfigError(
                    f"--name {text} names none of the logs; write LOG=LABEL, as runs/a/ledger=SOME."
                )
            names[str(Path(log))] = label
        comparison = compare(read_logs(self.logs, names), radii=self.radii, align=self.align)
        # Files before text: a reader of the text that goes away, as `head` does, must not cost the files.
        written = [] if self.out is None else html.write(comparison, self.out, self.title)
        for path in written:
            say(f"wrote {path}")
        print_comparison(comparison, self.format, as_json=self.json)


@dataclass(frozen=True, kw_only=True)
class CompareCommand(ReportCommand):
    """Compare logs image by image: paired differences from the first log, with bootstrap intervals and an
    exact paired test, besides everything that `report` shows.

    Logs with different images, alpha or n are refused; --align compares them on the images they share and
    certifies stored votes again at the smallest alpha."""

    def run(self) -> None:
        if len(self.logs) < 2:
            raise ConfigError("`compare` needs two logs or more; `report` shows a single one.")
        super().run()


def show(paths: Sequence[Path], *, as_json: bool = False) -> Comparison:
    """Prints the verdict and the tables of the logs, and returns the comparison."""
    from smoothheads.results.compare import compare
    from smoothheads.results.read import read_logs

    comparison = compare(read_logs(paths))
    print_comparison(comparison, "text", as_json=as_json)
    return comparison


def print_comparison(comparison: Comparison, form: Form, *, as_json: bool) -> None:
    """Prints the verdict in words, where the form is text, and the tables."""
    from smoothheads.report import tables, words

    verdict = [textwrap.fill(printable(sentence), 100) for sentence in words.verdict(comparison)]
    head = ["\n".join(verdict)] if form == "text" else []
    print_tables(tables.all_tables(comparison), form, as_json=as_json, words=head)


@dataclass(frozen=True, kw_only=True)
class RecertifyCommand(ResultCommand):
    """Certify again from a ledger's stored votes, with another alpha or for another aggregation (a head, a
    prefix of heads, a consensus), without one forward pass.

    Each certificate holds at its own alpha; whoever tries many settings and keeps the best must divide alpha
    by their number."""

    ledger: tyro.conf.Positional[str]
    """Folder that `smoothheads certify` wrote."""
    alpha: float | None = None
    """New failure probability per image."""
    aggregation: str | None = None
    """Another base classifier whose votes were counted in the same pass."""
    out: OutFolder = None
    """Folder of the new ledger (default: beside the old one)."""

    def run(self) -> None:
        if self.alpha is None and self.aggregation is None:
            raise ConfigError("Add --alpha or --aggregation: with neither the certificates stay as they are.")

        from smoothheads.results.derive import recertify
        from smoothheads.results.read import ledger_folder

        # The folder of the new ledger says what was changed.
        folder = ledger_folder(local_folder(self.ledger, has_out=self.out is not None))
        changes = [f"alpha-{self.alpha:g}"] if self.alpha is not None else []
        changes += [self.aggregation] if self.aggregation is not None else []
        out = self.out or folder.with_name("-".join([folder.name, *changes]))
        recertify(folder, out, alpha=self.alpha, aggregation=self.aggregation)
        show([out], as_json=self.json)
        say(f"ledger: {out}")


@dataclass(frozen=True, kw_only=True)
class ThreatsCommand(ResultCommand):
    """Derive certificates against other threats from the radii and votes of an l2 ledger, without one forward
    pass: l-infinity balls (--linf), and how far the true label stays among the k most likely classes
    (--top-k).

    l-infinity radii are the l2 radii divided by the square root of the dimension: derived numbers, weak for
    large images. Top-k statements hold with probability at least 1 - alpha per image; the bounds of all
    classes share alpha."""

    ledger: tyro.conf.Positional[str]
    """Folder that `smoothheads certify` wrote, or a log file."""
    linf: bool = False
    """l-infinity radii."""
    top_k: tuple[int, ...] = ()
    """Certify that the true label stays among so many classes; several values give several rows."""
    radii: tuple[float, ...] | None = None
    """l2 radii of the top-k table (default: steps of a quarter)."""
    levels: tuple[float, ...] | None = None
    """l-infinity radii of its table, in steps of the grid: 8 stands for 8/255 (default: powers of two)."""
    dimension: int | None = None
    """Pixel values of an image, for a log that does not state its shape."""

    def run(self) -> None:
        if not self.linf and not self.top_k:
            raise ConfigError("Name a threat: add --linf, --top-k K, or both.")

        from smoothheads.report import table, tables
        from smoothheads.results.read import read_log

        log = read_log(local(self.ledger))
        threats = [tables.linf(log, self.levels, self.dimension)] if self.linf else []
        threats += [tables.top_k(log, self.top_k, self.radii)] if self.top_k else []
        if self.json:
            print_json([each for threat in threats for each in threat.to_json()])
        else:
            print("\n\n".join(table.to_text(threat.table()) for threat in threats))


@dataclass(frozen=True, kw_only=True)
class MergeCommand(ResultCommand):
    """Join the ledgers of `certify --shard i/n` into the ledger that one process would have written. Missing
    images, images that two shards hold and shards of different runs are refused."""

    shards: Logs
    """Ledger folders of all shards, or the run's folder that they lie in."""
    out: OutFolder = None
    """Folder of the merged ledger (default: ledger beside the shards)."""

    def run(self) -> None:
        from smoothheads.results.derive import merge

        if not self.shards:
            raise ConfigError("Name the ledgers of all shards, or the run's folder that they lie in.")
        # A run's folder holds its shards; of several ledgers the first one tells where that folder is.
        first = self.shards[0]
        parent = first if any(first.glob("ledger-*-of-*")) else first.absolute().parent
        out = merge(self.shards, self.out or parent / "ledger")
        print_json({"ledger": str(out)}) if self.json else print(out)


@dataclass(frozen=True, kw_only=True)
class AuditCommand(ResultCommand):
    """Check certification logs, ours or anybody's in the field's format: complete indices, duplicates,
    consistency of predict and correct, radii above the cap, the n and alpha that the top radii reveal,
    rounding up, time format; for our ledgers also checksums, votes, bounds and radii, recomputed.

    --rerun K evaluates the votes of K random images again in a fresh process, with the network that the
    ledger names. --self-test sets certifiers and logs that lie before the audit, each of which it must catch.

    Exit code 0 if there is no error, 1 if there is one; warnings do not count."""

    logs: Logs
    """Ledger folders or log files."""
    sigma: float | None = None
    """Standard deviation of the noise, if the log does not say."""
    n: int | None = None
    """Stated samples, if the log does not say."""
    alpha: float | None = None
    """Stated failure probability, if the log does not say."""
    expected: int | None = None
    """How many images a complete log holds."""
    rerun: int | None = None
    """Evaluate the votes of so many random images again."""
    checkpoint: Path | None = None
    """For --rerun: the network or export, if the ledger does not lie in its folder."""
    root: str | None = None
    """For --rerun: where the data set lies, if not where it lay in training."""
    self_test: bool = False
    """Set certifiers and logs that lie before the audit."""
    certifier: str | None = None
    """For --self-test: examine this certifier (smoothheads, plain or package.module:function)."""

    def run(self) -> int:
        if self.self_test:
            return self._examine_certifier(self.certifier) if self.certifier else self._examine_liars()
        if not self.logs:
            raise ConfigError("Name the logs to audit, or add --self-test.")

        from smoothheads.report.words import audit_json, audit_text
        from smoothheads.results.audit import SEEN_BY_RERUN, audit

        audits = []
        for path in self.logs:
            result = audit(path, sigma=self.sigma, n=self.n, alpha=self.alpha, expected=self.expected)
            # Votes are evaluated again only where the file itself is in order.
            if self.rerun is not None and result.sound:
                from smoothheads.runs.referee import rerun

                say(f"{path}: evaluating {self.rerun} random images again in a fresh process")
                again = rerun(path, self.rerun, checkpoint=self.checkpoint, root=self.root)
                unseen = result.unseen if again.different else tuple(set(result.unseen) - set(SEEN_BY_RERUN))
                result = replace(result, findings=(*again.findings(), *result.findings), unseen=unseen)
            audits.append(result)
        if self.json:
            print_json([audit_json(each) for each in audits])
        else:
            print("\n\n".join(audit_text(each) for each in audits))
        return 0 if all(each.sound for each in audits) else 1

    def _examine_certifier(self, name: str) -> int:
        """Prints what is wrong with a certifier that shows us its votes."""
        from smoothheads.runs import liars

        certify = liars.find_certifier(name)
        findings = [*liars.examine(certify), *liars.examine_networks(certify)]
        if self.json:
            print_json([{"severity": f.severity, "code": f.code, "message": f.message} for f in findings])
        else:
            lines = [f"  {f.severity:<8}{f.code:<12}{f.message}" for f in findings]
            print("\n".join([f"{name}:", *(lines or ["  nothing wrong found"])]))
        return int(any(finding.severity == "error" for finding in findings))

    def _examine_liars(self) -> int:
        """Prints what the audit says about certifiers and logs that lie."""
        from smoothheads.report.table import Cell, Table, to_text
        from smoothheads.runs import liars

        trials = liars.self_test()
        if self.json:
            print_json(
                [{"liar": t.liar, "must": t.must, "found": t.found, "passed": t.passed} for t in trials]
            )
        else:
            columns = ("liar", "finding", "found", "passed")
            texts = [
                (t.liar, t.must or "nothing", ", ".join(t.found) or "nothing", "yes" if t.passed else "NO")
                for t in trials
            ]
            rows = tuple(tuple(Cell(text, text) for text in row) for row in texts)
            print(to_text(Table("Liars and what must catch them", columns, rows)))
        return int(not all(trial.passed for trial in trials))


@dataclass(frozen=True, kw_only=True)
class BoardCommand(ResultCommand):
    """Make one static page that can be sorted from all ledgers, logs and studies below a folder: method,
    network, sigma, ACR, certified accuracy, worst class and cost, with links to the evidence.

    Nothing enters without passing the audit, and every entry says what was verified, what is only claimed,
    and what the audit could not see."""

    folder: tyro.conf.Positional[Path]
    """Folder with ledgers and logs at any depth."""
    out: OutFile = None
    """The page (default: board.html in the folder)."""
    title: str = "Certified robustness: a board of verified logs"
    """Title of the page."""

    def run(self) -> None:
        from smoothheads.files import reserve_file, write_stamped
        from smoothheads.report.board import board_html, collect
        from smoothheads.studies.board import study_entries

        out = self.out or self.folder / "board.html"
        reserve_file(out)
        entries, refused = collect(self.folder)
        of_studies, damaged = study_entries(self.folder)
        entries, refused = [*entries, *of_studies], refused | damaged
        if not entries and not refused:
            raise LedgerError(f"{self.folder} has no ledgers and logs; name a folder that has.")
        write_stamped(out, board_html(entries, refused, title=self.title, out=out))
        say(f"wrote {out}")
        reasons = {str(path): reason for path, reason in refused.items()}
        if self.json:
            print_json({"entries": [str(entry.path) for entry in entries], "refused": reasons})
            return
        print(f"{len(entries)} entries, {len(refused)} refused")
        for path, reason in reasons.items():
            print(f"  {path}: {reason}")
