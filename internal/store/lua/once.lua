-- once.lua, functions only: a request that comes again is answered as before, whatever has become of the period.
--
-- Its key is a string, 'PERIOD "DATE" "TEMPLATE" SEQUENCE KEY': the period as in the record, the date as it was printed and the
-- template, both quoted as in Go, and the fingerprint of the key that hides the sequence, or "plain".

-- recall returns {"once", seconds, microseconds, ANSWER}, what the key holds; or nil for a request that was not answered yet.
local function recall(request, time)
  local answered = redis.call('GET', request)
  if answered then
    -- Written again, so that replicas can confirm it: the first answer may have been refused because they did not.
    redis.call('SET', request, answered, 'KEEPTTL')
    return {'once', time[1] + 0, time[2] + 0, answered, 0, 0}
  end
end

-- remember keeps for 48 hours what a request is answered. The last two arguments are '"DATE" "TEMPLATE"' and KEY.
local function remember(request, issued)
  local answer = ARGV[1] .. ' ' .. ARGV[#ARGV - 1] .. ' ' .. string.format('%.0f', issued) .. ' ' .. ARGV[#ARGV]
  redis.call('SET', request, answer, 'EX', 48 * 60 * 60)
end

