-- history: read counters, on the master, and write nothing.
--
-- KEYS  1  counter, 2 record: as in guard.lua, of the period that it is now
--       3  and on: counters of other periods
-- ARGV  as in guard.lua; n, limit and expires are not used
--
-- Reply: integers, for every counter the last sequence issued, -1 where there is none or it holds no number; the first is
-- that of the period that it is now. Or a status as in guard.lua or
--   "future"   the server's clock went back; detail: the period entered
if stands == 'future' then
  return answer('future', entered)
end
local issued = {lost and -1 or last or -1}
for i = 3, #KEYS do
  local there, failed = read(KEYS[i])
  if failed then
    return failed
  end
  issued[i - 1] = number(there) or -1
end
return issued
