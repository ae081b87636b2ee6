-- Brings a namespace's hot copy from one checkpoint to the next, in one step.
-- KEYS: copy, spell (while there is one, the copy is its own). ARGV: previous digest ('' if none),
-- digest, seq, id, parent, record, packed chunk numbers, seconds to live, number of fields to drop,
-- those fields, then new fields and values. Returns 1 if the copy is this checkpoint now, 0 if
-- there was nothing to build on.
if redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
local have = redis.call('HGET', KEYS[1], 'digest') or ''
if have ~= ARGV[2] then
  if have ~= ARGV[1] then
    local seq = tonumber(redis.call('HGET', KEYS[1], 'seq') or '0')
    if have ~= '' and seq <= tonumber(ARGV[3]) then redis.call('DEL', KEYS[1]) end
    return 0
  end
  local drops = tonumber(ARGV[9])
  for i = 10, 9 + drops do redis.call('HDEL', KEYS[1], ARGV[i]) end
  for i = 10 + drops, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
  redis.call('HSET', KEYS[1], 'digest', ARGV[2], 'seq', ARGV[3], 'id', ARGV[4],
    'parent', ARGV[5], 'record', ARGV[6], 'numbers', ARGV[7])
end
redis.call('EXPIRE', KEYS[1], ARGV[8])
return 1
