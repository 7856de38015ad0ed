-- peek: read the counter on the master, and write nothing.
--
-- KEYS  1 counter, 2 record
-- ARGV  1 to 5  as in rules.lua; limit and expires are not used
--       6  highWater  the greatest sequence of the period that the caller has seen, 0 if none
--
-- Reply: {LAST, BASE}, integers, as in history.lua; or a status of rules.lua or
--   "lost" HELD       the counter once existed; HELD is its content now, "" if it is gone
--   "missing"         nothing has been issued in the period
--   "exhausted" HELD  the counter holds 10^15 or more, which no script writes; HELD is its content
--include time
local id
local counter, record, highWater, purpose = KEYS[1], KEYS[2], ARGV[6] + 0, 'read'
--include rules
if lost then return answer('lost', held or '') end
if not last then return answer('missing') end
if last == 1e15 then return answer('exhausted', held) end
return {last, state == 'open' and -1 or baseOf(label)}
