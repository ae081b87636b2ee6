-- Removes a copy and pending writes, unless a spell holds them. KEYS: spell, copy, pending writes.
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
return redis.call('DEL', KEYS[2], KEYS[3])
