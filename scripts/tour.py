#!/usr/bin/env python3
"""Makes the pictures and the answers of docs/tour anew.

Runs the commands in the pages, those of each page in a directory of its own. They write the
pictures, and their output replaces the output in the page. Traces of scripts are the same every
time, so running this again changes nothing.

    scripts/tour.py             writes into docs/tour
    scripts/tour.py DIRECTORY   writes there instead

BACKSTITCH_BIN is the command; the default is target/release/backstitch.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "tour"
INDENT = "    "
PROMPT = INDENT + "$ "


def is_block(line):
    """Whether a line belongs to a block of commands and answers."""
    return line.startswith(INDENT) or not line.strip()


def command_at(lines, at):
    """The command that begins at a line, and the number of the line after it."""
    command = lines[at].removeprefix(PROMPT)
    while command.endswith("\\") or command.count("'") % 2 == 1:
        at += 1
        command += "\n" + lines[at].removeprefix(INDENT)
    return command, at + 1


def answer_end(lines, at):
    """The number of the line after the answer that begins at a line."""
    end = at
    while at < len(lines) and is_block(lines[at]) and not lines[at].startswith(PROMPT):
        at += 1
        # Empty lines at its end belong to the text.
        if lines[at - 1].strip():
            end = at
    return end


def run(command, directory):
    """The output of a command, as lines of the page."""
    path = f"{directory}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-eu", "-c", command],
        cwd=directory,
        env={**os.environ, "PATH": path, "LC_ALL": "C"},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"exit status {done.returncode}: {command}")
    return [f"{INDENT}{line}".rstrip() for line in done.stdout.rstrip().splitlines()]


def made_anew(text, directory):
    """A page with the present answers to its commands."""
    lines, out, at = text.splitlines(), [], 0
    while at < len(lines):
        if not lines[at].startswith(PROMPT):
            out.append(lines[at])
            at += 1
            continue
        command, behind = command_at(lines, at)
        out += lines[at:behind]
        out += run(command, directory)
        at = answer_end(lines, behind)
    return "\n".join(out) + "\n"


def main():
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PAGES
    binary = os.environ.get("BACKSTITCH_BIN") or ROOT / "target" / "release" / "backstitch"
    for page in sorted(PAGES.glob("*.md")):
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            (scratch / "backstitch").symlink_to(pathlib.Path(binary).resolve())
            text = made_anew(page.read_text(), scratch)
            for picture in sorted(scratch.glob("*.svg")):
                (output / picture.name).write_bytes(picture.read_bytes())
        (output / page.name).write_text(text)


main()
