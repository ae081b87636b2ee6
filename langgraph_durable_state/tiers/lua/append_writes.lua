-- Takes a task's pending writes that Postgres will be told of later.
-- KEYS: spell, pending writes, outbox, numbers of the outbox, fence.
-- ARGV: 1 token, 2 item, 3 bound of the outbox, 4 whether to open the spell, 5 to 7 the digest ('?'
-- if nobody knows), id and place in the order of the head that it opens on, 8 whether that is
-- marked, 9 whether a restart loses nothing that this saver was told, 10 the fence of the lease they
-- are made under ('' if there is none), then of each row its field, the field it takes if its task's
-- first batch differs ('' if it replaces), and its value, which begins with its digest.
local spell, writes, outbox, count = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if fenced(KEYS[5], ARGV[10]) then return {'fenced'} end
local state = open_spell(spell, ARGV[1], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8],
  ARGV[9])
if state.answer then return state.answer end
if redis.call('LLEN', outbox) >= tonumber(ARGV[3]) then return {'full'} end
local news = false
for i = 11, #ARGV, 3 do
  local field, value = ARGV[i], ARGV[i + 2]
  local have = redis.call('HGET', writes, field)
  local same = have and string.sub(have, 1, 16) == string.sub(value, 1, 16)
  if have and not same and ARGV[i + 1] ~= '' then
    field = ARGV[i + 1]
    same = redis.call('HEXISTS', writes, field) == 1
  end
  if not same then
    redis.call('HSET', writes, field, value)
    news = true
  end
end
if not news then return {'stored', 1, state.marked} end
redis.call('PERSIST', writes)
redis.call('HSET', spell, 'at', now())
append(spell, outbox, count, 'w', state, '', ARGV[2])
return {'stored', 0, state.marked}
