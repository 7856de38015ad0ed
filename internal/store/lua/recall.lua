-- recall.lua gives a request that comes again the answer that it had, whatever has become of the period. Before it are the locals
-- request, its key, and time, as TIME replies.
--
-- The key is a string, 'PERIOD "DATE" "TEMPLATE" SEQUENCE KEY': the period as in the record, the date as it was printed and the
-- template, both quoted as in Go, and the fingerprint of the key that hides the sequence, or "plain".
--
-- Reply: {"once", seconds, microseconds, ANSWER}, what the key holds.
local answered = redis.call('GET', request)
if answered then
  -- Written again, so that replicas can confirm it: the first answer may have been refused because they did not.
  redis.call('SET', request, answered, 'KEEPTTL')
  return {'once', time[1] + 0, time[2] + 0, answered}
end
