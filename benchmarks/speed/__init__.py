"""What the scoreboard is made of: cells that are measured one by one, and the tables, plots and page they come to."""
