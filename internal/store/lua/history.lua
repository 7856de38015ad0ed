-- history: read counters, on the master, and write nothing.
--
-- KEYS  1 counter, 2 record, of the current period; 3 and on: counters of other periods
-- ARGV  1 to 5 as in rules.lua; limit and expires are not used
--       6  highWater  the greatest sequence of the current period that the caller has seen, 0 if none
--
-- Reply: for every counter an integer, the last sequence issued, -1 where there is none or it holds no number; the current
-- period's first. Or a status of rules.lua.
local time, id = redis.call('TIME')
local counter, record, highWater, purpose = KEYS[1], KEYS[2], ARGV[6] + 0, 'read'
--include rules
local issued = {not lost and last or -1}
for i = 3, #KEYS do issued[i - 1] = read(KEYS[i]) or -1 end
return issued
