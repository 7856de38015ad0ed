-- once stands before guard.lua in the take and the open of a request that may come again: it is answered as before, whatever
-- has become of the period.
--
-- KEYS  3  request: string, what it was answered: "PERIOD DATE TEMPLATE SEQUENCE", the period as in guard.lua, then the date as
--          it was printed and the template, both quoted as in Go. 0.1.0 wrote neither, and reads past them.
-- ARGV  last one: DATE TEMPLATE
--
-- Reply: as what follows, or {"once", seconds, microseconds, answer}. What is issued is remembered for 48 hours.
local printed = table.remove(ARGV) -- so that ARGV is what the rest expects
local answered = redis.call('GET', KEYS[3])
if answered then
  -- Written again, so that replicas can confirm it: the first answer may have been refused for want of them.
  redis.call('SET', KEYS[3], answered, 'KEEPTTL')
  local now = redis.call('TIME')
  return {'once', tonumber(now[1]), tonumber(now[2]), answered}
end

