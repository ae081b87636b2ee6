-- Takes a put that Postgres will be told of later: checks the head, applies it, appends it to the
-- thread's outbox, in one step.
-- KEYS: spell, copy, pending writes, outbox, numbers of the outbox, fence.
-- ARGV: 1 token, 2 claim (0 any, 1 head, 2 empty, 3 aside, 4 refused), 3 expected digest, 4 digest,
-- 5 id, 6 parent, 7 record, 8 packed chunk numbers, 9 digest of the copy that the fields build on
-- ('' if they are whole), 10 item, 11 bound of the outbox, 12 whether to open the spell, 13 to 15
-- the digest ('?' if nobody knows), id and place in the order of the head that it opens on, 16
-- whether that is marked, 17 whether a restart loses nothing that this saver was told, 18 the fence
-- of the lease it is made under ('' if there is none), 19 the number of fields to drop, those fields,
-- then new fields and values.
local spell, copy, writes, outbox, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
if fenced(KEYS[6], ARGV[18]) then return {'fenced'} end
local state = open_spell(spell, ARGV[1], ARGV[12], ARGV[13], ARGV[14], ARGV[15],
  ARGV[16], ARGV[17])
if state.answer then return state.answer end
if state.digest == ARGV[4] then return {'won', state.seq, 1, state.marked} end
local claim = ARGV[2]
local unknown = state.digest == '?'
local wins = claim == '0' or (claim == '1' and (unknown or state.digest == ARGV[3]))
  or ((claim == '2' or claim == '3') and (unknown or state.digest == ''))
if not wins and claim ~= '3' and claim ~= '4' then return {'lost'} end
if redis.call('LLEN', outbox) >= tonumber(ARGV[11]) then return {'full'} end
if not wins then
  append(spell, outbox, count, claim == '3' and 'k' or 'r', state, '', ARGV[10])
  return {'kept', state.seq}
end
if ARGV[9] ~= '' and redis.call('HGET', copy, 'digest') ~= ARGV[9] then return {'whole'} end
local seq = string.format('%.0f', state.seq + 1)
if ARGV[9] == '' then redis.call('DEL', copy) end
local drops = tonumber(ARGV[19])
for i = 20, 19 + drops do redis.call('HDEL', copy, ARGV[i]) end
for i = 20 + drops, #ARGV, 2 do redis.call('HSET', copy, ARGV[i], ARGV[i + 1]) end
redis.call('HSET', copy, 'digest', ARGV[4], 'seq', seq, 'id', ARGV[5], 'parent', ARGV[6],
  'record', ARGV[7], 'numbers', ARGV[8])
redis.call('PERSIST', copy)
-- Nobody reads the pending writes of a head that was left behind; those of others may come first.
for _, field in ipairs(redis.call('HKEYS', writes)) do
  if string.sub(field, 1, #state.id + 1) == state.id .. '\0' then
    redis.call('HDEL', writes, field)
  end
end
redis.call('HSET', spell, 'digest', ARGV[4], 'seq', seq, 'id', ARGV[5],
  'chain', state.chain .. ARGV[4], 'at', now())
local how = state.digest == '' and 'e' or 'h'
if unknown then how = claim == '0' and 'a' or claim == '1' and 'h' or 'e' end
-- What the first put expects is what the spell builds on.
if unknown and claim ~= '0' then redis.call('HSET', spell, 'base', ARGV[3]) end
append(spell, outbox, count, how, state, unknown and ARGV[3] or state.digest, ARGV[10])
return {'won', seq, 0, state.marked}
