-- read: read counters on the master, and write nothing.
--
-- KEYS  1 counter, 2 record, of the current period; from 3 on, counters of other periods
-- ARGV  1 to 7  as in rules.lua; limit, expires and n are not used
--
-- Reply: an array with two integers for every key but the record: the first sequence of the period, 0 if it is neither
-- entered nor prepared; and the last sequence issued, 0 if the period was opened but none was issued, -1 if there is no
-- counter or it does not hold a sequence. Or a refusal of rules.lua, or one of these, with the counter's content as
-- text; if there are other keys, the counter is -1 instead:
--   "lost"       the current period's counter once existed
--   "exhausted"  the current period's counter holds 10^15 or more, which no script writes
local time, id, purpose = redis.pcall('TIME'), nil, 'read'
--include rules
if #KEYS == 2 and lost then return reply('lost', held or '') end
if #KEYS == 2 and last == 1e15 then return reply('exhausted', held) end

local counters = {}
-- show adds a counter that holds seq.
local function show(key, seq)
  local starts = firstOf(string.match(key, '%w+$')) -- a counter's key ends with its label
  table.insert(counters, starts or 0)
  table.insert(counters, (not seq or seq == 1e15) and -1 or starts and seq == starts - 1 and 0 or seq)
end
show(counter, not lost and last)
for i = 3, #KEYS do show(KEYS[i], (read(KEYS[i]))) end
return counters
