-- What the scripts that append have in common; it stands before each of them.

local function now()
  local t = redis.call('TIME')
  return t[1] .. string.format('%06d', tonumber(t[2]))
end

-- Changes at every start and at a fail-over, after which recent keys may be gone or old ones back.
-- Where INFO is denied nobody can tell.
local function server()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
end

-- The open spell's state; or what to answer instead.
local function open_spell(key, token, opens, digest, id, seq, marked, secured)
  local s = redis.call('HMGET', key, 'token', 'phase', 'server', 'digest', 'id', 'seq', 'chain',
    'previous', 'marked')
  local state = {token = s[1], digest = s[4], id = s[5], seq = tonumber(s[6] or '0'), chain = s[7],
    marked = s[9]}
  if s[2] == 'open' then
    if s[3] ~= server() then return {answer = {'restarted'}} end
    -- One who does not wait for the disk is enough: what he was told may be gone after a restart.
    if secured == '' then redis.call('HSET', key, 'secured', '') end
    return state
  end
  if s[2] == 'opening' and s[1] == token and opens ~= '' then
    redis.call('HSET', key, 'phase', 'open', 'server', server(), 'digest', digest, 'id', id,
      'seq', seq, 'base', digest, 'chain', '', 'marked', marked, 'secured', secured, 'at', now())
    return {token = token, digest = digest, id = id, seq = tonumber(seq), chain = '',
      marked = marked}
  end
  if s[2] == 'opening' then return {answer = {'cold', s[1], s[8] or ''}} end
  redis.call('HSET', key, 'token', token, 'phase', 'opening', 'previous', s[1] or '', 'digest', '',
    'id', '', 'seq', '0', 'base', '', 'chain', '', 'marked', '', 'n', '0')
  return {answer = {'cold', token, s[1] or ''}}
end

-- A lease's fence is kept longer than any process is paused and goes on: a week.
local FENCE_SECONDS = 604800

-- Whether a larger fence is known than an item's ('' if it has none); if not, its own is from now on.
-- A server that lost the fence does not know, and takes the item.
local function fenced(key, fence)
  if fence == '' then return false end
  if tonumber(redis.call('GET', key) or '0') > tonumber(fence) then return true end
  redis.call('SET', key, fence, 'EX', FENCE_SECONDS)
  return false
end

-- The outbox counts its entries from the clock on, so that a count never comes twice; so does each
-- spell, by whose numbers Postgres knows what it has: not even a server that was set back to an older
-- snapshot gives one out again.
local function append(spell, outbox, count, how, state, before, item)
  if redis.call('EXISTS', outbox) == 0 then redis.call('SET', count, now()) end
  local last = tonumber(redis.call('HGET', spell, 'n'))
  local number = string.format('%016.0f', math.max(last + 1, tonumber(now())))
  redis.call('HSET', spell, 'n', number)
  redis.call('RPUSH', outbox, how .. state.token .. before .. string.rep('\0', 16 - #before)
    .. number .. now() .. item)
end
