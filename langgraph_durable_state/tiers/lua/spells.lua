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

-- Whose data a server has: a replica that was promoted tells its old master's as the second.
local function lineage(which)
  local info = redis.pcall('INFO', 'replication')
  return type(info) == 'string' and string.match(info, which .. ':(%x+)') or ''
end

-- What became of the server that a spell was opened on; '' if it is this one.
local function fate(opened_on, its_lineage)
  if opened_on == server() then return '' end
  local promoted = its_lineage ~= '' and lineage('master_replid2') == its_lineage
  return promoted and 'promoted' or 'restarted'
end

-- How secured a spell must be for that to have lost nothing of it.
local EXCUSED = {restarted = '1', promoted = '2'}

-- The open spell's state; or what to answer instead.
local function open_spell(key, token, opens, digest, id, seq, marked, secured)
  local s = redis.call('HMGET', key, 'token', 'phase', 'server', 'digest', 'id', 'seq', 'chain',
    'previous', 'marked', 'secured', 'lineage')
  local here = server()
  if s[2] == 'open' then
    if s[3] ~= here then return {answer = {'restarted'}} end
    -- The one who waits for the least is enough: what he was told may be gone.
    if secured < s[10] then redis.call('HSET', key, 'secured', secured) end
    return {token = s[1], digest = s[4], id = s[5], seq = tonumber(s[6]), chain = s[7],
      marked = s[9]}
  end
  if s[2] == 'opening' and s[3] == here then
    if s[1] ~= token or opens == '' then
      if secured < s[10] then redis.call('HSET', key, 'secured', secured) end
      return {answer = {'cold', s[1], s[8]}}
    end
    redis.call('HSET', key, 'phase', 'open', 'digest', digest, 'id', id, 'seq', seq,
      'base', digest, 'chain', '', 'marked', marked, 'secured', secured, 'at', now())
    return {token = token, digest = digest, id = id, seq = tonumber(seq), chain = '',
      marked = marked}
  end
  -- One that was opening on another server may have been opened there, and all of it be lost: its
  -- mark is nobody's to take over then. One that closes is, but not under its own token: whoever
  -- closes it is about to take that off.
  local previous = s[2] == 'closing' and s[1] or ''
  if s[2] == 'opening' and s[10] >= EXCUSED[fate(s[3], s[11])] then previous = s[1] .. s[8] end
  if s[1] == token then return {answer = {'cold', token, token}} end
  redis.call('HSET', key, 'token', token, 'phase', 'opening', 'previous', previous,
    'server', here, 'lineage', lineage('master_replid'), 'digest', '', 'id', '', 'seq', '0',
    'base', '', 'chain', '', 'marked', '', 'secured', secured, 'n', '0', 'at', now())
  return {answer = {'cold', token, previous}}
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
