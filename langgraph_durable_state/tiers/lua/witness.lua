-- The newest signed head of a namespace that was seen. KEYS[1] where it is kept.
return redis.call('GET', KEYS[1])
