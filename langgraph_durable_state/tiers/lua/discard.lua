-- Removes a spell that is not current, with its copy and pending writes; what is in the outbox
-- stays to be flushed. KEYS: spell, copy, pending writes. ARGV: token, digest of the hot head.
local s = redis.call('HMGET', KEYS[1], 'token', 'digest')
if s[1] ~= ARGV[1] or (ARGV[2] ~= '' and s[2] ~= ARGV[2]) then return 0 end
return redis.call('DEL', unpack(KEYS))
