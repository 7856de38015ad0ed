-- recall.lua gives a request that comes again its stored answer, whatever has become of the period. It needs the locals
-- request, the key of the answer, and time, as TIME replies.
--
-- The key is a string, 'PERIOD "DATE" "TEMPLATE" SEQUENCE KEY': the period as in the record, the date as it was printed
-- and the template, both quoted as in Go, and the fingerprint of the key that hides the sequence, or "plain".
--
-- Reply: {"once", seconds, microseconds, ANSWER}: the stored answer.
local answered = redis.call('GET', request)
if answered then
  -- Written again, so that replicas can confirm it: the first answer may have been refused because they did not.
  redis.call('SET', request, answered, 'KEEPTTL')
  return {'once', time[1] + 0, time[2] + 0, answered}
end
