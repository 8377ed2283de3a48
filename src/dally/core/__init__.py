"""The pure heart of the house: jobs, cluster, plans, the scheduler and its journal. No input or output here."""
