-- Stores a whole hot copy, unless a newer one is there.
-- KEYS: copy, spell (while there is one, the copy is its own). ARGV: digest, seq, id, parent,
-- record, packed chunk numbers, seconds to live, then fields and values.
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local seq = tonumber(redis.call('HGET', KEYS[1], 'seq') or '0')
if seq > tonumber(ARGV[2]) then return 0 end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'digest', ARGV[1], 'seq', ARGV[2], 'id', ARGV[3],
  'parent', ARGV[4], 'record', ARGV[5], 'numbers', ARGV[6])
for i = 8, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('EXPIRE', KEYS[1], ARGV[7])
return 1
