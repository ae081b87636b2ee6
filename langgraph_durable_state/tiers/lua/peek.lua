-- What the hot tier holds of a namespace, in one round trip.
-- KEYS: spell, copy, pending writes. ARGV: digest of the copy that the reader holds ('' if none).
local spell = redis.call('HMGET', KEYS[1], 'token', 'phase', 'previous', 'id', 'seq', 'digest',
  'base', 'chain', 'marked', 'secured', 'server', 'lineage')
spell[11] = spell[1] and fate(spell[11], spell[12]) or ''
local digest, copy = redis.call('HGET', KEYS[2], 'digest') or '', {}
if digest ~= ARGV[1] then copy = redis.call('HGETALL', KEYS[2]) end
return {spell, digest, copy, redis.call('HGETALL', KEYS[3])}
