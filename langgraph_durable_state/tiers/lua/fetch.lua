-- A hot copy, if it is the checkpoint with this digest.
-- KEYS[1] the copy. ARGV: digest, seconds to live from this read on ('' to leave it).
if redis.call('HGET', KEYS[1], 'digest') ~= ARGV[1] then return false end
if ARGV[2] ~= '' then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return redis.call('HGETALL', KEYS[1])
