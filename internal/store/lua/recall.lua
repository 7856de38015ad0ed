-- recall.lua repeats the stored answer to a request, whatever has become of its period. It needs two locals: request,
-- the key of the answer, and time, as TIME replies.
--
-- The answer is a string: 'PERIOD "DATE" "TEMPLATE" SEQUENCE KEY', or 'PERIOD "DATE" "TEMPLATE" "TYPE" SEQUENCE KEY' if
-- all types share a counter (WithSharedCounter), since the key of the answer then does not contain the type. PERIOD has
-- the form of the record's field entered. DATE, as it was printed, TEMPLATE and TYPE are quoted as in Go. KEY is the
-- fingerprint of the key that hides the sequence, or "plain".
--
-- Reply: {"once", seconds, microseconds, ANSWER}, where ANSWER is the stored answer.
local answered = redis.call('GET', request)
if answered then
  -- It is written again so that replicas can confirm it: the first attempt may have failed because they did not.
  redis.call('SET', request, answered, 'KEEPTTL')
  return {'once', time[1] + 0, time[2] + 0, answered}
end
