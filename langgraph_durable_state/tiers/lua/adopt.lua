-- Goes on with a spell on the server that holds it now. KEYS: spell. ARGV: token.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
redis.call('PERSIST', KEYS[1])  -- a full server takes what follows a write that it allows
redis.call('HSET', KEYS[1], 'server', server(), 'at', now())
return 1
