-- Removes a spell whose durable head is no longer marked; its copy goes with its time to live.
-- KEYS: spell, copy, pending writes. ARGV: token, seconds to live.
local s = redis.call('HMGET', KEYS[1], 'token', 'phase')
if s[1] ~= ARGV[1] or s[2] ~= 'closing' then return 0 end
redis.call('DEL', KEYS[1])
redis.call('EXPIRE', KEYS[2], ARGV[2])
redis.call('EXPIRE', KEYS[3], ARGV[2])
return 1
