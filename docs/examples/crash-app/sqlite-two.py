#!/usr/bin/env python3
"""Two processes share a database and add rows in turn, a transaction each, through the VFS of patchgroups.

    sqlite-two.py BACKSTITCH.SO [ROWS]

Says a row's number when COMMIT has returned. sqlite-setup.sh makes the database, `sqlite-check.sh consistent` judges what is left.
"""

import subprocess
import sys


def shell(extension):
    process = subprocess.Popen(["sqlite3", "-batch", "-bail"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdin.write(f".load {extension}\n.open file:rows.db?vfs=backstitch\nPRAGMA busy_timeout = 10000;\n")
    return process


def run(extension, rows):
    processes = [shell(extension), shell(extension)]
    for row in range(1, rows + 1):
        process = processes[row % 2]
        process.stdin.write(f"BEGIN; INSERT INTO rows VALUES({row}, hex(zeroblob(700)));\n")
        if row % 3 == 0:
            process.stdin.write(f"UPDATE rows SET filling = filling || '{row}';\n")
        process.stdin.write(f"COMMIT;\n.shell echo row {row}\n")
        process.stdin.flush()
        for line in process.stdout:
            if line == f"row {row}\n":
                break
        else:
            sys.exit(f"a process ended before row {row}")
        print(row, flush=True)
    for process in processes:
        process.stdin.close()
        if process.wait() != 0:
            sys.exit("a process failed")


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 6)
