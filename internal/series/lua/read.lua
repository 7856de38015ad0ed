-- read.lua reads counters on the master. It writes nothing.
--
-- KEYS  1 counter of the current period, 2 record; from 3 on, counters of other periods
-- ARGV  1 to 7  as in rules.lua; limit, expires and n are not used
--
-- The reply is an array with two integers for each counter. The first one is the first sequence of the period, or 0 if
-- the period is neither entered nor prepared. The second one is the last sequence issued. It is 0 if the period was
-- opened but no sequence was issued, and -1 if there is no counter or its content is not a sequence.
--
-- The reply can also be a refusal of rules.lua or, if there are only two keys, one of the following refusals. Their
-- text is the content of the counter.
--   "lost"       the counter of the current period is lost; see rules.lua
--   "exhausted"  the counter of the current period is 10^15 or more. No script writes such a counter
local time, id, purpose = redis.pcall('TIME'), nil, 'read'
--include rules
if #KEYS == 2 and lost then return reply('lost', content or '') end
if #KEYS == 2 and last == 1e15 then return reply('exhausted', content) end

local counters = {}
-- show adds the two integers of a counter to the reply. seq is the content of the counter, or nil or false if the last
-- sequence is not known.
local function show(key, seq)
  local starts = firstOf(string.match(key, '%w+$')) -- the key of a counter ends with the label of its period
  table.insert(counters, starts or 0)
  table.insert(counters, (not seq or seq == 1e15) and -1 or starts and seq == starts - 1 and 0 or seq)
end
show(counter, not lost and last)
for i = 3, #KEYS do show(KEYS[i], (read(KEYS[i]))) end
return counters
