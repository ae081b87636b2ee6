-- The newest signed head of a namespace that was seen, and how often one was forgotten lately.
-- KEYS: where it is kept, where that is counted.
return redis.call('MGET', KEYS[1], KEYS[2])
