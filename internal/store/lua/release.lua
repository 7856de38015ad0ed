-- release: release a claim, so that nobody waits until it expires.
--
-- KEYS  1 record
-- ARGV  1  token  of the claim
--
-- Reply: an integer, 0, whether or not the record had that claim.
local claim = redis.call('HGET', KEYS[1], 'claim') or ''
if string.match(claim, '^%S+') == ARGV[1] then redis.call('HDEL', KEYS[1], 'claim') end
return 0
