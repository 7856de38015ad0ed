-- takes: what take does, for several types of one server in one call, as long as it is the usual case for each.
--
-- KEYS  2 for each type: as in guard.lua
-- ARGV  6 for each type: as in guard.lua; and behind them, with a ledger, 'ledger'
--
-- Reply: for each type the last number issued, or 0 where nothing was written and take has to see why.
local count = #KEYS / 2
local now = tonumber(redis.call('TIME')[1])
local info = ARGV[6 * count + 1] and redis.call('INFO', 'replication')
local issued = {}
for i = 1, count do
  issued[i] = hot(2 * i - 2, 6 * i - 6, now, info) or 0
end
return issued
