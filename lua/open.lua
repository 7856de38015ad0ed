-- open: create the period's counter, or lift the one that is there, and issue numbers from it.
--
-- It is safe in any order and any number of times: it judges everything anew and never lowers a counter.
--
-- KEYS and ARGV 1 to 6 as in guard.lua; n is at least 0; the counter expires at past.
-- ARGV  7  floor    the highest sequence that may have been used, at most the limit; '' if nothing tells
--       8  checked  when the caller saw, under the lock, that the counter was missing: server's time, milliseconds;
--                   '' for an operator's Raise, which needs no lock and replaces a record that lies in the future
--       9  lease    the lock's expiry, milliseconds: open is refused once it has passed since checked
--
-- Reply: an integer, the last of the n numbers issued (for n = 0 where the counter stands); or, with nothing written, a
-- status as in guard.lua or
--   "late"       the lock has expired since checked, or the server's clock went back
--   "future"     the server's clock went back; detail: the period entered
--   "lost"       the counter was there once, and there is no floor; detail: what it holds now
--   "exhausted"  fewer than n numbers are left above counter and floor; detail: the last sequence used. Here the period
--                is opened at that sequence if it was not yet.
local raise = ARGV[8] == ''
if not raise then
  local age = now * 1000 + math.floor(tonumber(time[2]) / 1000) - tonumber(ARGV[8])
  if age < 0 or age >= tonumber(ARGV[9]) then
    return answer('late', '')
  end
end
if stands == 'future' and not raise then
  return answer('future', entered)
end
local floor = tonumber(ARGV[7])
if lost and not floor then
  return answer('lost', held or '')
end

local used = math.max(last or 0, floor or 0, mark)
local issued = used + tonumber(ARGV[1])
local enough = issued <= tonumber(ARGV[5])
if not enough then
  issued = used
end
-- The record goes before the counter: a script that dies half-way is not rolled back. It outlives the period by seven
-- days, so that the guard still knows the last one after a weekend or a holiday.
redis.call('HSET', KEYS[2], 'entered', ARGV[2])
redis.call('EXPIREAT', KEYS[2], string.format('%.0f', tonumber(ARGV[4]) + 7 * 24 * 60 * 60))
if issued ~= last then
  redis.call('SET', KEYS[1], string.format('%.0f', issued))
end
redis.call('EXPIREAT', KEYS[1], ARGV[4])
if not enough then
  return answer('exhausted', string.format('%.0f', used))
end
return issued
