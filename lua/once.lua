-- once stands before guard.lua in the take and the open of a request that may come again: it is answered as before, whatever
-- has become of the period.
--
-- KEYS  3  request: string, what it was answered: "PERIOD SEQUENCE", the period as in guard.lua
--
-- Reply: as what follows, or {"once", seconds, microseconds, answer}. What is issued is remembered for 48 hours.
local answered = redis.call('GET', KEYS[3])
if answered then
  -- Written again, so that replicas can confirm it: the first answer may have been refused for want of them.
  redis.call('SET', KEYS[3], answered, 'KEEPTTL')
  local now = redis.call('TIME')
  return {'once', tonumber(now[1]), tonumber(now[2]), answered}
end

