-- Notes that the durable head is marked for a spell. KEYS: spell. ARGV: token.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
redis.pcall('HSET', KEYS[1], 'marked', '1')  -- a full server must be flushed all the same
return 1
