"""What a run amounts to: figures, tables and the HTML report. Reads the ledger, never the scheduler."""
