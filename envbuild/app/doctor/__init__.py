"""What works on this machine, and how to mend the rest."""
