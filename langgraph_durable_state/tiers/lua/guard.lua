-- Notes that the durable head is marked for a spell. KEYS: spell. ARGV: token.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
redis.call('PERSIST', KEYS[1])  -- a full server takes what follows a write that it allows
redis.call('HSET', KEYS[1], 'marked', '1')
return 1
