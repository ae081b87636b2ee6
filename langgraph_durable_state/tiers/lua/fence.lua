-- Raises the fence of a thread, below which nothing is appended any more; it is never lowered.
-- KEYS: fence. ARGV: the fence of the lease that was just taken.
fenced(KEYS[1], ARGV[1])
return 1
