"""Many seeds of the simulator and all mutants: run them in parallel, count, report, and keep a ledger of it."""
