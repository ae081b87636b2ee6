-- Forgets a signed head, and remembers for a while that it did: whoever has seen that head before
-- must look again. KEYS: where it is kept, where that is counted.
-- ARGV: seconds to remember it for, '?' if the head is about to be removed or moved back: then none
-- is kept until that is done.
redis.call('DEL', KEYS[1])
local drops = string.match(redis.call('GET', KEYS[2]) or '0', '%d+') + 1
return redis.call('SET', KEYS[2], string.format('%d', drops) .. ARGV[2], 'EX', ARGV[1])
