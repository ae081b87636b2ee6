-- Removes hot copies. KEYS the copies.
return redis.call('DEL', unpack(KEYS))
