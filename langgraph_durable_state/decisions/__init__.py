"""What to store, what to reuse, who wins: plain functions, no I/O, no clock."""
