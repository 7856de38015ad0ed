-- history: read counters on the master, and write nothing.
--
-- KEYS  1 counter, 2 record, of the current period; from 3 on, counters of other periods
-- ARGV  1 to 5  as in rules.lua; limit and expires are not used
--       6  highWater  the greatest sequence of the current period that the caller has seen, 0 if none
--
-- Reply: {LAST, BASE, LAST, BASE, ...}, integers for every counter, the current period's first; or a status of
-- rules.lua.
--   LAST  the position of the counter; -1 if there is no counter, or it does not hold a sequence
--   BASE  the sequence before the period's first, for the period entered and those opened ahead; -1 for others
--include time
local id
local counter, record, highWater, purpose = KEYS[1], KEYS[2], ARGV[6] + 0, 'read'
--include rules
local counted = {}
-- show adds a counter that holds seq.
local function show(key, seq)
  local l = string.match(key, '%w+$') -- a counter's key ends with its label
  local opened = l == enteredLabel or string.find(ahead, ';' .. l .. ' ', 1, true)
  table.insert(counted, seq and seq < 1e15 and seq or -1)
  table.insert(counted, opened and baseOf(l) or -1)
end
show(counter, not lost and last)
for i = 3, #KEYS do show(KEYS[i], (read(KEYS[i]))) end
return counted
