-- What is held of a namespace, as it is found. KEYS: spell, copy, pending writes.
local s = redis.call('HMGET', KEYS[1], 'phase', 'digest')
return {s[1] or '', s[2] or '', redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3])}
