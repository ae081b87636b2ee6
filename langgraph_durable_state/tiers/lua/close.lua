-- Begins to close a spell in which nothing is left to flush. 1 if it did, or had begun already. Not
-- on another server than it was opened on, which may have lost what was put in it.
-- KEYS: spell, outbox. ARGV: token, microseconds that nothing was put for.
local s = redis.call('HMGET', KEYS[1], 'token', 'phase', 'at', 'chain', 'server')
if s[1] ~= ARGV[1] or (s[2] ~= 'closing' and s[5] ~= server()) then return 0 end
if s[2] == 'open' and (s[4] ~= '' or redis.call('EXISTS', KEYS[2]) == 1) then return 0 end
if s[2] ~= 'closing' and tonumber(now()) - tonumber(s[3]) < tonumber(ARGV[2]) then return 0 end
redis.call('PERSIST', KEYS[1])  -- a full server takes what follows a write that it allows
redis.call('HSET', KEYS[1], 'phase', 'closing')
return 1
