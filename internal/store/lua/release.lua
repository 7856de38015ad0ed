-- release: give a claim back, so nobody has to wait until it expires.
--
-- KEYS 1 record; ARGV 1 token. Reply: an integer, 0.
local claim = redis.call('HGET', KEYS[1], 'claim') or ''
if string.match(claim, '^%S+') == ARGV[1] then redis.call('HDEL', KEYS[1], 'claim') end
return 0
