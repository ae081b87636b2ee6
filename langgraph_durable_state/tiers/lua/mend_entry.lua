-- Replaces an entry of a thread's outbox, if it is as it was found; 1 if it did.
-- KEYS: outbox, its numbers. ARGV: the entry's number, what was found, what is right.
local at = tonumber(ARGV[1]) - tonumber(redis.call('GET', KEYS[2]) or '0')
if at < 0 or redis.call('LINDEX', KEYS[1], at) ~= ARGV[2] then return 0 end
redis.call('LSET', KEYS[1], at, ARGV[3])
return 1
