-- take: the counter exists, so increment it. One round trip, no lock, and no key can expire in between.
--
-- KEYS and ARGV as in guard.lua; n is at least 1.
--
-- Reply: an integer, the last of the n numbers issued; or, with nothing written, a status as in guard.lua or
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
if last + tonumber(ARGV[1]) > tonumber(ARGV[5]) then
  return answer('exhausted', held)
end
if redis.call('PTTL', KEYS[1]) < 0 then -- something stripped the expiry: a SET or a PERSIST by hand
  redis.call('EXPIREAT', KEYS[1], ARGV[4])
end
return redis.call('INCRBY', KEYS[1], ARGV[1])
