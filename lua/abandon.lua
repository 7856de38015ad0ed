-- abandon: give a claim back, so that nobody has to wait until it expires.
--
-- KEYS  2  record: as in guard.lua
-- ARGV  1  token
--
-- Reply: an integer, 0.
local claim = redis.call('HGET', KEYS[2], 'claim')
if claim and string.find(claim, ARGV[1] .. ' ', 1, true) == 1 then
  redis.call('HDEL', KEYS[2], 'claim')
end
return 0
