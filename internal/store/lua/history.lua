-- history: read counters on the master, and write nothing.
--
-- KEYS  1 counter, 2 record, of the current period; from 3 on, counters of other periods
-- ARGV  1 to 5  as in rules.lua; limit and expires are not used
--       6  highWater  the greatest sequence of the current period that the caller has seen, 0 if none
--
-- Reply: an array with an integer for every counter, the current period's first: the last sequence issued; 0 if the
-- period was opened but none was issued; -1 if there is no counter, or it does not hold a sequence. Or a status of
-- rules.lua.
local time, id = redis.call('TIME')
local counter, record, highWater, purpose = KEYS[1], KEYS[2], ARGV[6] + 0, 'read'
--include rules
-- shown returns the last sequence issued, for a counter that holds seq.
local function shown(key, seq)
  if not seq or seq == 1e15 then return -1 end
  if seq == baseOf(string.match(key, '%w+$')) then return 0 end -- a counter's key ends with its label
  return seq
end
local issued = {shown(counter, not lost and last)}
for i = 3, #KEYS do issued[i - 1] = shown(KEYS[i], read(KEYS[i])) end
return issued
