"""The report of runs: a self-contained HTML page about what callbacks recorded, and a live view of it."""
