#!/usr/bin/env python3
"""Switches each rule off in turn, and puts the tables of the results between the marks in docs/GUARANTEES.md.

Each mechanism is a piece. Results are kept in FOLDER: a run that was stopped continues when it is started again with the
same folder and the same binary. With names of pieces, only those are run, and no document is written.

    scripts/ablate.py [--folder FOLDER] [PIECE ...]
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/GUARANTEES.md"
BEGIN, END = "<!-- rules -->\n", "<!-- end of rules -->\n"

MECHANISMS = ["soft", "sync", "journal=ordered", "journal=writeback", "journal=full"]
# Under a log no rule of a layout can be half off, since the order of transactions replaces its dependencies.
HALF_OFF = ["soft", "sync"]
WITHOUT_LOG = ["scheduler", "interbuffer", "amom=immediate", "amom=delayed:100"]
# The rules of UFS only, by parts of their names.
ONLY_UFS = (
    "initialised,pointers-go,clean-taken,record-kept,clean-only-after,groups-are,record-is-of-last,if-cleared,"
    "clears-dead,frees-after-clearing,entry-after-moved"
)
# A rule that both the logs of operations and the layouts state.
SHARED = "group-after-earlier-groups"
WHOLE, HALF = ["--form", "whole"], ["--form", "first,last,only-oldest,only-newest,merged"]


def pieces():
    """The pieces by name: the arguments of `crash ablate`."""
    found = {}
    for mechanism in MECHANISMS:
        found[mechanism] = ["--ordering", mechanism, *WHOLE]
    for mechanism in WITHOUT_LOG + ["lffs-file"]:
        found[mechanism] = ["--ordering", mechanism, "--own", *WHOLE]
    found["ufs2"] = ["-t", "ufs2", "--ordering", "soft", "--site", ONLY_UFS, *WHOLE]
    for mechanism in HALF_OFF:
        found[f"half {mechanism}"] = ["--ordering", mechanism, *HALF]
    return found


def run(backstitch, arguments):
    """Runs a piece. Returns its rows, and how long it took."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([backstitch, "crash", "ablate", "--json", *arguments], stdout=subprocess.PIPE)
    # The exit code is 1 if rules survive.
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(f"crash ablate {' '.join(arguments)}: exit code {done.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (rows,) = json.loads(done.stdout)["tables"].values()
    return {
        "rows": rows,
        "seconds": time.monotonic() - began,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }


def results(folder, backstitch, names):
    """The results of the pieces. Missing ones are made now."""
    with open(backstitch, "rb") as file:
        binary = hashlib.file_digest(file, "sha256").hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    all_pieces, found = pieces(), {}
    for name in names:
        path = folder / (name.replace(" ", "-") + ".json")
        kept = json.loads(path.read_text()) if path.exists() else {}
        if kept.get("binary") != binary:
            kept = {"binary": binary, **run(backstitch, all_pieces[name])}
            path.with_suffix(".part").write_text(json.dumps(kept, indent=1))
            path.with_suffix(".part").rename(path)
        found[name] = kept
        counts = collections.Counter(row["verdict"] for row in kept["rows"])
        print(f"{name}: {dict(counts)} in {kept['seconds']:.0f} s, {kept['cpu_seconds']:.0f} s of CPU time", file=sys.stderr)
    return found


def cell(row):
    """What showed that a rule was off."""
    verdict = row["verdict"] if row else "not_reached"
    if verdict == "found":
        return f"{row['workload']}, {row['states']}"
    if verdict == "tested":
        path = row["test"].removesuffix("/main.rs")
        return f"test `{path.rsplit('/', 1)[-1]}`"
    return {"survived": "**survived**", "implied": "implied", "alike": "no effect", "not_reached": "–"}[verdict]


def table(columns, wanted=lambda row: True, with_text=True):
    """A table with a row for each rule and a column for each of some pieces' rows."""
    head = ["rule", "kind", "without it"] if with_text else ["rule and form"]
    lines = ["| " + " | ".join(head + [f"`{title}`" for title in columns]) + " |", "|---" * (len(head) + len(columns)) + "|"]
    by_site = {}
    for title, rows in columns.items():
        for row in filter(wanted, rows):
            by_site.setdefault(row["site"], {})[title] = row
    for site, rows in by_site.items():
        one = next(iter(rows.values()))
        cells = [cell(rows.get(title)) for title in columns]
        head = [f"`{site}`", one["class"], one["without"]] if with_text else [f"`{site}`"]
        lines.append("| " + " | ".join(head + cells) + " |")
    return lines


def sums(found, names, wanted=lambda row: True):
    """How many rules had each result, and how long it took."""
    verdicts = ["found", "tested", "implied", "alike", "survived", "not_reached"]
    lines = [
        "| | found by workloads | by tests of their own | implied | no effect | survived | not come by | CPU time, s |",
        "|---" * (len(verdicts) + 2) + "|",
    ]
    for name in names:
        counts = collections.Counter(row["verdict"] for row in filter(wanted, found[name]["rows"]))
        numbers = [str(counts[verdict]) for verdict in verdicts] + [f"{found[name]['cpu_seconds']:.0f}"]
        # A rule's name is in code quotes at the beginning of its row.
        lines.append(f"| {name.removeprefix('half ')} | " + " | ".join(numbers) + " |")
    return lines


def text(found):
    """The text between the marks."""
    of = lambda names, prefix="": {name: found[prefix + name]["rows"] for name in names}
    is_told = lambda row: row["verdict"] not in ("not_reached", "found")
    half = of(HALF_OFF, "half ")
    # Rules of one mechanism, and those of UFS, have tables of their own.
    own = {row["site"] for name in WITHOUT_LOG + ["lffs-file", "ufs2"] for row in found[name]["rows"]} - {SHARED}
    is_shared = lambda row: row["site"] not in own
    lines = sums(found, MECHANISMS, is_shared) + [""] + table(of(MECHANISMS), is_shared)
    lines += ["", "The rules of the mechanisms that order writes without a log:", ""] + table(of(WITHOUT_LOG))
    lines += ["", "The rules of the logs of operations:", ""] + table(of(["lffs-file"]), lambda row: row["site"] != SHARED)
    lines += ["", "The rules that only UFS comes by:", ""] + table({"soft": found["ufs2"]["rows"]})
    lines += [
        "",
        "Half off. Of several patches that a rule waits for, the first or the last one is not waited for, or only the oldest or",
        "the newest one is; or one that was merged into another patch counts as committed:",
        "",
    ]
    lines += sums(found, [f"half {name}" for name in HALF_OFF])
    lines += ["", "Those that no workload shows:", ""] + table(half, is_told, with_text=False)
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target/ablate", help="what is done is kept there")
    parser.add_argument("piece", nargs="*", choices=[[], *pieces()], metavar="PIECE", help=", ".join(pieces()))
    arguments = parser.parse_args()
    backstitch = os.environ.get("BACKSTITCH_BIN", str(ROOT / "target/release/backstitch"))
    found = results(arguments.folder, backstitch, arguments.piece or list(pieces()))
    if not arguments.piece:
        before, rest = DOCUMENT.read_text().split(BEGIN)
        DOCUMENT.write_text(before + BEGIN + text(found) + END + rest.split(END)[1])
    total = sum(piece["cpu_seconds"] for piece in found.values())
    print(f"{total / 60:.0f} minutes of CPU time", file=sys.stderr)


if __name__ == "__main__":
    main()
