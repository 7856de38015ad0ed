-- peek: read the counter, on the master, and write nothing.
--
-- KEYS and ARGV as in guard.lua; n and limit are not used.
--
-- Reply: an integer, the last sequence issued; or a status as in guard.lua or
--   "future"   the server's clock went back; detail: the period entered
--   "lost"     the counter was there once; detail: what it holds now
--   "missing"  nothing was issued in the period yet
if stands == 'future' then
  return answer('future', entered)
end
if lost then
  return answer('lost', held or '')
end
if not last then
  return answer('missing', '')
end
return last
