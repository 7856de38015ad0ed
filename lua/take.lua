-- take: the counter exists, so increment it. One round trip, no lock, and no key can expire in between.
--
-- KEYS and ARGV as in guard.lua; for n = 0 it tells how the period stands. Callers who share an increment want those
-- numbers that are left:
-- ARGV  7  part  '1' if fewer than n will do, else absent
--
-- Reply: an integer, the last of the n numbers issued; or
--   "part"       the last numbers of the period were issued, fewer than n; detail: how many
-- or, with nothing written, a status as in guard.lua or
--   "future"     the server's clock went back; detail: the period entered
--   "lost"       the counter was there once; detail: what it holds now
--   "missing"    the period has to be opened, or a counter found without a record to be adopted
--   "exhausted"  fewer than n numbers are left; detail: the last sequence issued
if stands == 'future' then
  return answer('future', entered)
end
if lost then
  return answer('lost', held or '')
end
if stands == 'open' then
  return answer('missing', '')
end
local n = ARGV[1]
local left = tonumber(ARGV[5]) - last
local part = left < tonumber(n)
if part then
  if not ARGV[7] or left < 1 then
    return answer('exhausted', held)
  end
  n = string.format('%.0f', left)
end
if redis.call('PTTL', KEYS[1]) < 0 then -- something stripped the expiry: a SET or a PERSIST by hand
  redis.call('EXPIREAT', KEYS[1], ARGV[4])
end
local issued = redis.call('INCRBY', KEYS[1], n)
if part then
  return answer('part', n)
end
return issued
