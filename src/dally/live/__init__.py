"""The live side: worlds in which jobs are real."""
