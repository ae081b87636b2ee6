-- The policy by which this server evicts keys that do not expire; nothing if it does not, or if
-- INFO is denied. KEYS: any of ours.
local info = redis.pcall('INFO', 'memory')
if type(info) ~= 'string' then return '' end
if string.match(info, '\nmaxmemory:(%d+)') == '0' then return '' end
return string.match(info, 'maxmemory_policy:(allkeys%-%w+)') or ''
