"""Prints results as a table, and keeps them as CSV, for the benchmarks beside this file."""

import csv


def show_table(header, rows):
    """Prints the rows of texts below the header: the first column to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))))


def show_and_keep(header, rows, path):
    """Prints an empty line and the table, and writes the same texts to the CSV file."""
    texts = [[str(cell) for cell in row] for row in rows]
    print()
    show_table(header, texts)
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *texts])
